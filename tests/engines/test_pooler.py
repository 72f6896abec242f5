"""Through a pooler in transaction mode: every verb, no tenant's row or setting at another's, and what an operator is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from databases import Database, fresh
from langgraph_navin import Navin
from langgraph_navin.engines.builtin.connections import Connections
from langgraph_navin.errors import EngineUnavailable
from pooled import NOTHING, crowd, left_behind
from transaction_pooler import Pooler, pooler

NS = ("user", "u")
colours = pytest.mark.parametrize("colour", ["sync", "async"])


@pytest.fixture(scope="module")
def database(pg18: str) -> Iterator[Database]:
    """With every table, made on a direct connection."""
    with fresh(pg18) as made:
        with Navin.open(made.dsn) as navin:
            assert navin.checkpointer is not None
        yield made


@pytest.fixture
def pooled(database: Database) -> Iterator[Pooler]:
    """Three server connections, handed to whoever comes next."""
    with pooler(database.dsn) as made:
        yield made


@pytest.fixture
def shared(database: Database) -> Iterator[Pooler]:
    """One server connection for everybody."""
    with pooler(database.dsn, size=1) as made:
        yield made


@colours
@pytest.mark.parametrize("prepare", [None, False])
def test_tenants_on_three_connections_see_their_own(pooled: Pooler, colour: str, prepare: bool | None) -> None:
    asked, wrong = crowd(pooled.dsn, colour, rounds=2, prepare=prepare)
    assert wrong == []
    assert asked == 12 * 2 * 9
    assert pooled.turns > asked


@colours
def test_nothing_of_a_caller_stays_on_the_connection(shared: Pooler, colour: str) -> None:
    before = left_behind(shared.dsn)
    crowd(shared.dsn, colour, rounds=1)
    assert left_behind(shared.dsn) == before == NOTHING


def test_many_first_openings_through_a_pooler_succeed(pg18: str) -> None:
    with fresh(pg18) as empty, pooler(empty.dsn) as pooled:
        with ThreadPoolExecutor(4) as threads:
            opened = list(threads.map(lambda n: Navin.open(pooled.dsn, tenant=f"t{n}"), range(4)))
        for navin in opened:
            navin.store.put(NS, "k", {"mine": repr(navin)})
        assert [navin.store.get(NS, "k").value for navin in opened] == [{"mine": repr(navin)} for navin in opened]  # type: ignore[union-attr]
        for navin in opened:
            navin.close()
        assert [left_behind(pooled.dsn) for _ in range(3)] == [NOTHING] * 3


def test_a_direct_admin_dsn_makes_all_tables_and_serves_none(pg18: str) -> None:
    with fresh(pg18) as empty, pooler(empty.dsn) as pooled, Navin.open(pooled.dsn, admin_dsn=empty.dsn) as navin:
        assert navin.checkpointer.get({"configurable": {"thread_id": "t"}}) is None
        assert empty.value("select count(*) from pg_locks where locktype = 'advisory'") == 0
        navin.store.put(NS, "k", {})
        assert [left_behind(pooled.dsn) for _ in range(3)] == [NOTHING] * 3


def test_maintenance_works_through_a_pooler(pooled: Pooler, database: Database, tenant: str) -> None:
    with Navin.open(pooled.dsn, tenant=tenant, ttl={"sweep_interval_minutes": 0.001}) as navin:
        navin.store.put(NS, "k", {}, ttl=0.001)
        deadline = time.monotonic() + 20
        while database.value("select count(*) from navin.items where tenant_id = %s", tenant):
            assert time.monotonic() < deadline, "nobody swept"
            time.sleep(0.01)


# --- prepared statements ----------------------------------------------------------------------------------------


def prepared(connections: Connections) -> list[str]:
    """The server's names for what one of these connections prepared, once it was asked the same often enough."""
    with connections.connection() as connection:
        for _ in range(8):
            connection.execute("select %s::text", ("x",))
        return [name for (name,) in connection.execute("select name from pg_prepared_statements").fetchall()]


async def aprepared(connections: Connections) -> list[str]:
    async with connections.aconnection() as connection:
        for _ in range(8):
            await connection.execute("select %s::text", ("x",))
        cursor = await connection.execute("select name from pg_prepared_statements")
        return [name for (name,) in await cursor.fetchall()]


@pytest.mark.parametrize(("prepare", "direct", "through"), [(None, 1, 0), (False, 0, 0), (True, 1, 1)])
async def test_statements_are_prepared_where_they_stay(
    database: Database, shared: Pooler, prepare: bool | None, direct: int, through: int
) -> None:
    for dsn, expected in ((database.dsn, direct), (shared.dsn, through)):
        ours = Connections(dsn, prepare=prepare)
        assert len(prepared(ours)) == expected
        assert len(set(await aprepared(ours))) == expected * (2 if dsn == shared.dsn else 1)
        ours.close()


def test_a_name_is_never_anothers(shared: Pooler) -> None:
    """With psycopg's own names, each would run the other's statement, and be told nothing."""
    both = {letter: Connections(shared.dsn, prepare=True) for letter in "ab"}
    statements = {"a": "select 'a', %s::text", "b": "select 'b', %s::text"}
    for n in range(12):
        for letter, connections in both.items():
            with connections.connection() as connection:
                assert connection.execute(statements[letter].encode(), (str(n),)).fetchone() == (letter, str(n))
    for connections in both.values():
        connections.close()


@colours
async def test_who_insists_on_prepared_statements_is_told(pooled: Pooler, colour: str, tenant: str) -> None:
    with Navin.open(pooled.dsn, tenant=tenant, prepare=True, connections=1) as navin:
        store: Any = navin.store

        async def all_of_it() -> None:
            for n in range(20):
                if colour == "sync":
                    store.put(NS, "secret", {"n": n})
                else:
                    await store.aput(NS, "secret", {"n": n})

        with pytest.raises(EngineUnavailable, match="open with prepare=False") as caught:
            await all_of_it()
    assert caught.value.details["sqlstate"] == "26000"
    assert "secret" not in str(caught.value)
    assert "navin.write" not in str(caught.value)
