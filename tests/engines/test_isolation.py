"""Rows are separated by the server: whatever a statement says, it touches what its transaction was opened for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, cast

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.sql import SQL, Identifier

from databases import Database, fresh
from langgraph_navin.drive import run
from langgraph_navin.effects import dispatch
from langgraph_navin.engines.builtin.engine import BuiltinEngine
from langgraph_navin.engines.builtin.session import Model
from langgraph_navin.engines.builtin.settling import settle
from langgraph_navin.engines.builtin.writing import Index
from langgraph_navin.scopes import UNIT
from langgraph_navin.testing import FakeEmbeddings
from langgraph_navin.testing.bench import OTHER, USER, Bench, Perform

TABLES = ("ann", "dead", "epochs", "items", "journal", "partitions", "pending", "settled", "spaces", "vectors")
#: Those with a partition in every row that a caller may see.
PARTED = ("ann", "dead", "items", "journal", "partitions", "pending", "settled", "vectors")
TENANTS = ("ann-ltd", "bob-inc")


@pytest.fixture(scope="module")
def database(pg18: str) -> Iterator[Database]:
    """Two tenants with two partitions each, and rows in every table."""
    with fresh(pg18, migrate=True) as made:
        embeddings = FakeEmbeddings(8)
        engine = BuiltinEngine(made.engine.connections, Index(model=Model(embeddings, embeddings.dims)))
        for tenant in TENANTS:
            bench = Bench(engine, cast(Perform, lambda plan: run(dispatch(engine, plan))), tenant)
            for where in (USER, OTHER):
                for key in ("kept", "changed", "gone"):
                    bench.remember(key, {"text": f"green {key}"}, at=where)
                bench.remember("changed", {"text": "black"}, at=where)
            bench.forget("gone")
            made.rows("insert into navin.epochs values (%s, 0)", tenant)
        run(dispatch(engine, settle(1, thorough=True)))
        for bench in (Bench(engine, cast(Perform, lambda plan: run(dispatch(engine, plan))), tenant) for tenant in TENANTS):
            for where in (USER, OTHER):
                bench.remember("changed", {"text": "white"}, at=where)
        yield made


@contextmanager
def acting(database: Database, role: str = "navin_app", **given: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction as one of the roles, with these settings, rolled back at the end."""
    with psycopg.connect(database.dsn) as connection:
        connection.execute(SQL("set local role {}").format(Identifier(role)))
        for name, value in given.items():
            connection.execute("select set_config(%s, %s, true)", (f"navin.{name}", value))
        yield connection
        connection.rollback()


def select_all(connection: psycopg.Connection[Any], table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Those columns of every row, by default the tenant."""
    chosen = SQL(", ").join(map(Identifier, columns or ["tenant_id"]))
    return connection.execute(SQL("select {} from {}").format(chosen, Identifier("navin", table))).fetchall()


# --- what the schema says ---------------------------------------------------------------------------------------------


def test_every_table_forces_row_level_security(database: Database) -> None:
    found = database.rows("""
        select c.relname, c.relrowsecurity and c.relforcerowsecurity,
          (select count(*) from pg_policy p where p.polrelid = c.oid and p.polpermissive) > 0,
          (select bool_or(p.polroles = '{0}') from pg_policy p where p.polrelid = c.oid)
        from pg_class c where c.relnamespace = 'navin'::regnamespace and c.relkind in ('r', 'p', 'm', 'v') and c.relname <> 'migrations'
        order by 1""")
    assert found == [(table, True, True, False) for table in TABLES]


def test_every_key_begins_with_the_tenant(database: Database) -> None:
    keys = database.rows("""
        select i.indrelid::regclass::text, i.indexrelid::regclass::text, a.attname
        from pg_index i join pg_class c on c.oid = i.indrelid join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
        where c.relnamespace = 'navin'::regnamespace and c.relname <> 'migrations' and i.indisunique""")
    assert len(keys) >= len(TABLES)
    assert [key for key in keys if key[2] != "tenant_id"] == []


def test_functions_run_as_their_caller(database: Database) -> None:
    functions = database.rows("select proname, prosecdef from pg_proc where pronamespace = 'navin'::regnamespace")
    assert len(functions) > 10
    assert [name for name, definer in functions if definer] == []


def test_strangers_may_not_call_functions_nor_read_tables(database: Database) -> None:
    granted = database.rows("""
        select p.proname from pg_proc p where p.pronamespace = 'navin'::regnamespace and p.prorettype <> 'trigger'::regtype
          and exists (select from aclexplode(p.proacl) a where a.grantee = 0)
        union all select c.relname from pg_class c where c.relnamespace = 'navin'::regnamespace and c.relname <> 'migrations'
          and exists (select from aclexplode(c.relacl) a where a.grantee = 0)""")
    assert granted == []


@pytest.mark.parametrize("role", ["navin_app", "navin_maintenance"])
def test_the_roles_own_nothing_and_bypass_nothing(database: Database, role: str) -> None:
    flags = database.rows(
        "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication from pg_roles where rolname = %s", role
    )
    assert flags == [(False,) * 6]
    owned = database.value(
        """select (select count(*) from pg_class where relowner = r.oid) + (select count(*) from pg_proc where proowner = r.oid)
             + (select count(*) from pg_namespace where nspowner = r.oid) + (select count(*) from pg_auth_members where member = r.oid)
           from pg_roles r where r.rolname = %s""",
        role,
    )
    assert owned == 0


# --- what a caller sees -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_this_test_holds_rows_of_both_tenants(database: Database, table: str) -> None:
    with psycopg.connect(database.dsn) as connection:
        assert {tenant for (tenant,) in select_all(connection, table)} >= set(TENANTS)


@pytest.mark.parametrize("table", TABLES)
def test_without_a_caller_nothing_is_there(database: Database, table: str) -> None:
    with acting(database) as connection:
        assert select_all(connection, table) == []
    with acting(database, parts=UNIT.join((USER.text, OTHER.text))) as connection:
        assert select_all(connection, table) == []


@pytest.mark.parametrize("table", PARTED)
def test_a_caller_without_partitions_sees_nothing(database: Database, table: str) -> None:
    with acting(database, tenant=TENANTS[0]) as connection:
        assert select_all(connection, table) == []
    with acting(database, tenant=TENANTS[0], parts="") as connection:
        assert select_all(connection, table) == []


@pytest.mark.parametrize("table", PARTED)
def test_a_caller_sees_their_tenant_and_partitions(database: Database, table: str) -> None:
    for parts in ([USER.text], [USER.text, OTHER.text]):
        with acting(database, tenant=TENANTS[0], parts=UNIT.join(parts)) as connection:
            seen = set(select_all(connection, table, "tenant_id", "partition"))
        assert seen <= {(TENANTS[0], part) for part in parts}
        assert (TENANTS[0], USER.text) in seen


@pytest.mark.parametrize("table", ["epochs", "spaces"])
def test_a_caller_sees_their_tenants_settings_alone(database: Database, table: str) -> None:
    with acting(database, tenant=TENANTS[0]) as connection:
        assert select_all(connection, table) == [(TENANTS[0],)]


def test_the_list_of_partitions_opens_to_its_own_function_alone(database: Database) -> None:
    with acting(database) as connection:
        found = connection.execute("select * from navin.partitions_of(%s, %s)", (TENANTS[0], ["user"])).fetchall()
        assert found == [(USER.text,), (OTHER.text,)]
        assert select_all(connection, "partitions") == []
        assert select_all(connection, "items") == []


def test_a_pattern_is_no_partition(database: Database) -> None:
    for parts in ("%", "user:%", "user:", "*", UNIT, f"user:u-1{UNIT}"):
        with acting(database, tenant=TENANTS[0], parts=parts) as connection:
            seen = {partition for (partition,) in select_all(connection, "items", "partition")}
        assert seen == ({USER.text} if USER.text in parts.split(UNIT) else set())


# --- what a caller may change -----------------------------------------------------------------------------------------

_INSERT: LiteralString = """
insert into navin.items (tenant_id, partition, ns, key, id, value, kind, classification, agent_id, vid, dl, created_at, updated_at)
values (%s, %s, 'n', 'k', gen_random_uuid(), '{}', 'fact', 0, 'a', 1, 0, now(), now())"""


@pytest.mark.parametrize(("tenant", "partition"), [(TENANTS[1], USER.text), (TENANTS[0], OTHER.text), (TENANTS[1], OTHER.text)])
def test_nothing_is_written_elsewhere(database: Database, tenant: str, partition: str) -> None:
    with acting(database, tenant=TENANTS[0], parts=USER.text, who=UNIT.join("aa0 ")) as connection, pytest.raises(pg.InsufficientPrivilege):
        connection.execute(_INSERT, (tenant, partition))


def test_nothing_is_moved_elsewhere(database: Database) -> None:
    for change in ("update navin.items set tenant_id = 'bob-inc'", "update navin.items set partition = 'user:u-2'"):
        with acting(database, tenant=TENANTS[0], parts=USER.text) as connection, pytest.raises(pg.InsufficientPrivilege):
            connection.execute(change)


@pytest.mark.parametrize("statement", ["update navin.items set importance = 1", "delete from navin.items"])
def test_a_forgotten_condition_changes_the_callers_rows_alone(database: Database, statement: LiteralString) -> None:
    with acting(database, tenant=TENANTS[0], parts=USER.text, who=UNIT.join(("a", "a", "0", ""))) as connection:
        mine = len(select_all(connection, "items"))
        assert connection.execute(statement).rowcount == mine == 2


@pytest.mark.parametrize(
    "statement",
    [
        "delete from navin.journal",
        "truncate navin.journal",
        "update navin.journal set actor = 'x'",
        "update navin.journal set digest = null",
        "update navin.journal set old_value = '{}'",
        "update navin.journal set salt = '\\x00'",
        "update navin.epochs set epoch = 1",
        "delete from navin.partitions",
        "delete from navin.pending",
        "delete from navin.dead",
        "insert into navin.settled select * from navin.vectors",
        "update navin.vectors set embedding = '[1]'",
        "update navin.settled set embedding = '[1]'",
        "update navin.ann set ready = false",
        "delete from navin.ann",
        "update navin.spaces set dims = 1",
        "create index on navin.settled (key)",
        "create table navin.mine ()",
        "alter table navin.items disable row level security",
        "drop policy app on navin.items",
    ],
)
def test_the_application_may_not(database: Database, statement: LiteralString) -> None:
    with acting(database, tenant=TENANTS[0], parts=USER.text) as connection, pytest.raises(pg.InsufficientPrivilege):
        connection.execute(statement)


def test_the_one_change_of_the_journal_is_to_erase(database: Database) -> None:
    with acting(database, tenant=TENANTS[0], parts=USER.text) as connection:
        assert connection.execute("update navin.journal set old_value = null, salt = null").rowcount > 0


def test_maintenance_sees_all_tenants_through_policies_of_its_own(database: Database) -> None:
    with acting(database, "navin_maintenance") as connection:
        for table in TABLES:
            assert {tenant for (tenant,) in select_all(connection, table)} >= set(TENANTS)
    for statement in (
        "insert into navin.items select * from navin.items",
        "delete from navin.journal",
        "update navin.epochs set epoch = 2",
    ):
        with acting(database, "navin_maintenance") as connection, pytest.raises(pg.InsufficientPrivilege):
            connection.execute(statement)


def test_without_its_policies_maintenance_sees_nothing(database: Database) -> None:
    with psycopg.connect(database.dsn) as connection:
        connection.execute("drop policy maintenance on navin.items")
        connection.execute("set local role navin_maintenance")
        assert select_all(connection, "items") == []
        connection.rollback()


@pytest.mark.parametrize("after", ["select count(*) from navin.items", "select current_setting('navin.tenant', true)"])
def test_no_caller_outlives_their_statement(database: Database, after: LiteralString) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        before = connection.execute(after).fetchone()
        connection.execute("select * from navin.get_one('ann-ltd', 'user:u-1', 0, 3, null, 'user:u-1', 'n', 'k', false)")
        connection.execute("select navin.enter('ann-ltd', 'user:u-1')")
        role, now = connection.execute("select current_user, 1").fetchone() or (None, None)
        assert (role, now) == ("postgres", 1)
        assert [value or None for value in connection.execute(after).fetchone() or ()] == [value or None for value in before or ()]


def test_ids_in_vectors_of_reads_do_not_widen_the_caller(database: Database) -> None:
    """A statement that names more partitions than its caller may touch gets those of the caller."""
    statement: LiteralString = "select ns from navin.get_many('ann-ltd', 'user:u-1', 0, 3, null, %s, %s, %s) where id is not null"
    place = ["user", "u-1", "notes"]
    ns = UNIT.join(place) + UNIT
    params = ([USER.text, OTHER.text], [ns, ns], ["kept", "kept"])
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        assert len(connection.execute(statement, params).fetchall()) == 1
