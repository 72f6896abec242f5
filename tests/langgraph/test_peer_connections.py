"""What holds up whom in LangGraph's stores and in ours: locks, models, setup, lost connections.

The table in `test_peer_defects` says which report is tried where.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, TypedDict

import psycopg
import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import PutOp
from langgraph.store.postgres import PostgresStore

from databases import Database, fresh
from langgraph_navin import EngineUnavailable, Navin
from langgraph_navin.engines.builtin import schema
from store_subjects import Do, LetterCounts, Opened, Raises, Ruling, Subject, indexed, timed
from watched import SQL, begun, behind, fate, meanwhile, until_waiting, waiting

DOCS = ("docs",)
#: On a database only.
stored = timed
by_setup = pytest.mark.parametrize("subject", ["postgres-sync", "navin-sync"], indirect=True)
PATIENCE = 20.0


@pytest.fixture
def database(subject: Subject, request: pytest.FixtureRequest) -> Database:
    return behind(subject, request)


def pooled(subject: Subject, size: int) -> dict[str, Any]:
    """The option by which a subject has so many connections."""
    return {"connections": size} if subject.name == "navin" else {"pool_config": {"min_size": size, "max_size": size}}


# --- locks ------------------------------------------------------------------------------------------------------


@stored
async def test_batches_that_cross_end(opened: Opened, database: Database) -> None:
    """Rows are locked in one order: no two batches wait for each other."""
    left, right = await opened(), await opened()
    await left.batch([PutOp(DOCS, key, {"by": "nobody"}) for key in ("cross-a", "cross-m", "cross-z")])

    def writing(do: Do, *keys: str) -> asyncio.Task[Any]:
        return begun(do, "batch", [PutOp(DOCS, f"cross-{key}", {"by": keys[0]}) for key in keys])

    with meanwhile(database, SQL["lock"][left.name], "cross-m"):
        calls = [writing(left, *"amz")]
        await until_waiting(database, 1)
        calls.append(writing(right, *"zma"))
        await until_waiting(database, 2)
    ended = await asyncio.gather(*calls, return_exceptions=True)
    ruling = Ruling([], postgres=[psycopg.errors.DeadlockDetected], why="PostgresStore locks rows as a batch names them")
    assert [type(one) for one in ended if isinstance(one, Exception)] == ruling.of(left)
    assert len({str(item.value["by"]) for item in await left.search(DOCS)}) == 1


@stored
async def test_slow_calls_of_one_store_overlap(opened: Opened, subject: Subject, database: Database) -> None:
    """langgraph#7259: a lock around the whole instance, whatever the pool."""
    do = await opened(**pooled(subject, 4))
    keys = [f"slow-{n}" for n in range(4)]
    await do.batch([PutOp(DOCS, key, {}) for key in keys])
    one_at_a_time = subject == Subject("postgres", "sync")
    with meanwhile(database, SQL["lock"][do.name], keys[0]) as also:
        for key in keys[1:]:
            also.execute(SQL["lock"][do.name], [key])
        calls = [begun(do, "batch", [PutOp(DOCS, key, {"n": 1}), PutOp(DOCS, f"{key}-too", {})]) for key in keys]
        await until_waiting(database, 1 if one_at_a_time else 4)
        # The others of the peer wait where the server doesn't see them.
        assert {waiting(database) for _ in range(5)} == {1 if one_at_a_time else 4}
    await asyncio.gather(*calls)
    assert len(await do.search(DOCS)) == 8


# --- models -----------------------------------------------------------------------------------------------------


class Slow(LetterCounts):
    """A model that works until it is told to end."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.begun.set()
        assert self.end.wait(PATIENCE)
        return super().embed_documents(texts)


@pytest.fixture
def slow() -> Iterator[Slow]:
    model = Slow()
    yield model
    model.end.set()


@stored
async def test_a_model_at_work_holds_no_connection(opened: Opened, subject: Subject, slow: Slow) -> None:
    """Nor is a second one taken (langgraph#7218): there is only one."""
    do = await opened(index=indexed("text") | {"embed": slow}, **pooled(subject, 1))
    await do.put(DOCS, "k", {"text": "apple"}, index=False)
    writing = begun(do, "put", DOCS, "slow", {"text": "apple"})
    assert await asyncio.to_thread(slow.begun.wait, PATIENCE)
    reading = begun(do, "get", DOCS, "k")
    if do.name == "navin":
        item = await asyncio.wait_for(reading, PATIENCE)
        assert item.value == {"text": "apple"}
        assert not writing.done()
    free = Ruling(1, postgres=0, why="texts are embedded before a connection is taken; PostgresStore keeps one meanwhile")
    assert _free(do) == free.of(do)
    slow.end.set()
    await asyncio.gather(writing, reading)
    assert await do.key_set(DOCS, query="apple") == "slow"


def _free(do: Do) -> int:
    store: Any = do.store
    if do.name == "navin":
        return int(store._service.engine.connections._permits._free)
    return int(store.conn.get_stats()["pool_available"])


class Failing(LetterCounts):
    """A model that can't stand melons."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if any("melon" in text for text in texts):
            raise ArithmeticError("too sweet")
        return super().embed_documents(texts)


async def test_a_failing_model_fails_its_own_operation(opened: Opened) -> None:
    do = await opened(index=indexed("text") | {"embed": Failing()})
    texts = {"a": "apple", "bad": "melon", "b": "pear", "worse": "melons", "c": "zebra"}

    async def put(key: str) -> None:
        await do.put(DOCS, key, {"text": texts[key]})

    outcomes = await asyncio.gather(*map(put, texts), return_exceptions=True)
    shared = do.colour == "async" and do.name != "navin" and do.name != "memory"
    failed = Ruling(
        ["bad", "worse"], postgres=list(texts) if shared else ["bad", "worse"], why="AsyncPostgresStore fails a tick for one op"
    )
    assert [key for key, outcome in zip(texts, outcomes, strict=True) if isinstance(outcome, ArithmeticError)] == failed.of(do)
    kept = Ruling("a b c", postgres="" if shared else "a b c", why="as above")
    await kept.check(do, lambda: do.key_set(DOCS, query="apple"))


# --- setup ------------------------------------------------------------------------------------------------------


def _set_up(name: str, dsn: str) -> None:
    if name == "navin":
        Navin.open(dsn).close()
        return
    with PostgresStore.from_conn_string(dsn) as store:
        store.setup()


@by_setup
async def test_setup_waits_for_no_open_transaction(subject: Subject, server_dsn: str) -> None:
    """langgraph#7630: an index built "concurrently" waits until every older transaction has ended."""
    with fresh(server_dsn) as empty:
        with psycopg.connect(empty.dsn) as stranger:
            stranger.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            stranger.execute("select 1")
            setup = asyncio.ensure_future(asyncio.to_thread(_set_up, subject.name, empty.dsn))
            outcome = await fate(setup, empty)
        await setup
    assert outcome == Ruling("answers", postgres="waits", why="a schema is made in one short transaction").of(subject)


def test_tables_of_an_older_version_are_told_of(server_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """langmem#30: a column that an older version didn't have "does not exist"."""
    known = schema.migrations("core")
    with fresh(server_dsn) as old:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "migrations", lambda series: known[:1] if series == "core" else [])
            schema.migrate(old.dsn)
        with Navin.unprepared(dsn=old.dsn).store as store:
            with pytest.raises(EngineUnavailable, match="setup"):
                store.put(DOCS, "k", {"text": "apple"})
            with pytest.raises(EngineUnavailable, match="setup"):
                store.get(DOCS, "k")
            with pytest.raises(EngineUnavailable, match="setup"):
                store.search(DOCS, query="apple")
            store.setup()
            store.put(DOCS, "k", {"text": "apple"})
            assert [item.key for item in store.search(DOCS, query="apple")] == ["k"]


class State(TypedDict):
    n: int


def test_a_graph_given_the_wrong_object_says_so(navin_dsn: str) -> None:
    """langmem#48: what was passed was no store, and nothing was remembered."""

    def node(state: State, runtime: Runtime[None]) -> State:
        assert runtime.store is not None
        runtime.store.put(DOCS, "k", {})
        return state

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    with Navin.open(navin_dsn, tenant="wrong-object") as navin, pytest.raises(AttributeError, match="put"):
        builder.compile(store=navin).invoke({"n": 1})  # type: ignore[arg-type]


# --- lost connections -------------------------------------------------------------------------------------------


@stored
async def test_a_lost_connection_is_replaced(opened: Opened, database: Database) -> None:
    """langgraph#7304: "the connection is closed", for ever after."""
    do = await opened()
    await do.put(DOCS, "k", {"n": 1})
    database.rows(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    ruling = Ruling([{"n": 1}, {"n": 1}], postgres=Raises(psycopg.OperationalError), why="a dead connection is replaced, not kept")

    async def got() -> list[Any]:
        return [(await do.must_get(DOCS, "k")).value for _ in range(2)]

    for _ in range(2):
        await ruling.check(do, got)
