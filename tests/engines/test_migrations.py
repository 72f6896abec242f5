"""The schema's life: made once, whoever asks and however often; refused clearly; the same fresh and migrated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any

import pytest

from databases import Database, fresh
from langgraph_navin import EngineUnavailable, Navin, Unsupported
from langgraph_navin.engines.builtin import schema
from langgraph_navin.testing import FakeEmbeddings

INDEX = {"dims": 8, "embed": FakeEmbeddings(8)}
CURRENT = {series: schema.migrations(series)[-1].number for series in ("core", "vectors")}


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
