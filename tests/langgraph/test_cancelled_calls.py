"""Callers that give up: what they asked for is whole or absent, and the store goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from langgraph.store.base import PutOp

from databases import Database, fresh
from langgraph_navin import Navin, NavinStore
from store_subjects import Opened, Ruling, Subject
from watched import SQL, begun, behind, meanwhile, until_waiting

NS = ("user", "u-1")
#: Seconds: long enough for anything that isn't stuck.
PATIENCE = 20.0


@pytest.fixture(scope="module")
def database(server_dsn: str) -> Iterator[Database]:
    """A database of this module's own, so that those who wait for locks can be counted."""
    with fresh(server_dsn, migrate=True) as made:
        yield made


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def store(database: Database, tenant: str) -> Iterator[NavinStore]:
    """A store with one connection."""
    with Navin.unprepared(dsn=database.dsn, tenant=tenant, connections=1) as navin:
        yield navin.store


async def keys(store: NavinStore) -> list[str]:
    return sorted(item.key for item in await store.asearch(NS, limit=100))


def locked(database: Database, key: str) -> AbstractContextManager[Any]:
    """A stranger keeps this key's row locked."""
    return meanwhile(database, "select from navin.items where key = %s for update", key)


async def ended(*calls: asyncio.Future[Any]) -> list[str]:
    """How calls ended, in a word each."""
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)
    return ["cancelled" if isinstance(one, asyncio.CancelledError) else type(one).__name__ for one in outcomes]


LATE: dict[str, Callable[[NavinStore], Coroutine[Any, Any, object]]] = {
    "put": lambda store: store.aput(NS, "late", {"n": 3}),
    "delete": lambda store: store.adelete(NS, "other"),
    "the same place": lambda store: store.adelete(NS, "kept"),
    "batch": lambda store: store.abatch([PutOp(NS, "late", {"n": 3}), PutOp(NS, "other", None)]),
}


@pytest.mark.parametrize("late", LATE)
async def test_what_was_given_up_before_it_was_sent_never_happens(store: NavinStore, database: Database, late: str) -> None:
    """langgraph#6701: the operation of a caller whose time was up was carried out all the same."""
    await store.abatch([PutOp(NS, "kept", {"n": 1}), PutOp(NS, "other", {"n": 1})])
    with locked(database, "kept"):
        # The only connection is taken; what comes after waits its turn.
        first = asyncio.create_task(store.aput(NS, "kept", {"n": 2}))
        await until_waiting(database, 1)
        assert await ended(asyncio.create_task(asyncio.wait_for(LATE[late](store), 0.05))) == ["TimeoutError"]
    await first
    assert {item.key: item.value for item in await store.asearch(NS)} == {"kept": {"n": 2}, "other": {"n": 1}}


async def test_a_write_in_flight_that_was_given_up_leaves_the_store_alive(store: NavinStore, database: Database) -> None:
    """langgraph#5503: a cancelled call killed the task that served everybody."""
    await store.aput(NS, "kept", {"n": 1})
    for number in range(3):
        with locked(database, "kept"):
            call = asyncio.create_task(store.aput(NS, "kept", {"n": 2}))
            await until_waiting(database, 1)
            call.cancel()
            assert await ended(call) == ["cancelled"]
        await asyncio.wait_for(store.aput(NS, f"after-{number}", {}), PATIENCE)
    assert await keys(store) == ["after-0", "after-1", "after-2", "kept"]


async def test_a_neighbour_that_was_given_up_takes_nobody_along(store: NavinStore, database: Database) -> None:
    await store.aput(NS, "kept", {"n": 1})
    with locked(database, "kept"):
        calls = [asyncio.create_task(store.aput(NS, key, {"n": 2})) for key in ("kept", "a", "b", "kept", "c", "a")]
        await until_waiting(database, 1)
        for at in (1, 3, 4):
            calls[at].cancel()
        # Two of them are being sent with a neighbour who goes on waiting: they end when it is known what became of them.
        assert await ended(calls[3]) == ["cancelled"]
    assert await ended(*calls) == ["NoneType", "cancelled", "NoneType", "cancelled", "cancelled", "NoneType"]
    assert {"a", "b", "kept"} <= set(await keys(store))
    assert [item.value for key in ("kept", "a", "b") if (item := await store.aget(NS, key))] == [{"n": 2}] * 3


async def test_a_batch_that_was_given_up_is_whole_or_absent(store: NavinStore) -> None:
    """Given up at any moment on its way, from before it has begun until after it has been written."""
    for moment in range(40):
        batch = [PutOp((*NS, f"batch-{moment}"), f"k-{n}", {"n": n}) for n in range(5)]
        call = asyncio.create_task(store.abatch(batch))
        await asyncio.sleep(moment * 0.0003)
        call.cancel()
        await ended(call)
    written = [len(await store.asearch((*NS, f"batch-{moment}"))) for moment in range(40)]
    assert set(written) <= {0, 5}


async def test_a_batch_held_up_halfway_and_given_up_is_absent(store: NavinStore, database: Database) -> None:
    await store.aput(NS, "k-3", {"n": "old"})
    with locked(database, "k-3"):
        call = asyncio.create_task(store.abatch([PutOp(NS, f"k-{n}", {"n": "new"}) for n in range(5)]))
        await until_waiting(database, 1)
        call.cancel()
        await ended(call)
    assert [(item.key, item.value) for item in await store.asearch(NS)] == [("k-3", {"n": "old"})]


@pytest.mark.parametrize("subject", ["postgres-async", "navin-async"], indirect=True)
async def test_nobody_waits_for_ever_where_every_task_is_cancelled(opened: Opened, subject: Subject, table: Database) -> None:
    """A server that stops cancels all tasks of its loop, those that it doesn't know too."""
    do = await opened()
    await do.put(NS, "kept", {"n": 1})
    mine = asyncio.current_task()
    with meanwhile(table, SQL["lock"][subject.name], "kept"):
        calls = [begun(do, "put", NS, key, {"n": 2}) for key in ("kept", "a", "b")]
        await until_waiting(table, 1)
        for task in asyncio.all_tasks() - {mine, *calls}:
            task.cancel()
    _, stuck = await asyncio.wait(calls, timeout=PATIENCE if subject.name == "navin" else 0.2)
    ruling = Ruling(0, postgres=3, why="its one background task answers all calls: those in flight wait for ever when it is cancelled")
    assert len(stuck) == ruling.of(do)
    for call in stuck:
        call.cancel()
    await do.put(NS, "after", {})
    assert (await do.must_get(NS, "after")).value == {}


@pytest.fixture
def table(subject: Subject, request: pytest.FixtureRequest) -> Database:
    return behind(subject, request)


# --- the end of a program ---------------------------------------------------------------------------------------

ENDS = """
    import asyncio, sys
    from langgraph_navin import Navin

    navin = Navin.open(sys.argv[1], tenant=sys.argv[2])
    ns = ("user", "u-1")

    async def work():
        await asyncio.gather(*(navin.store.aput(ns, f"k-{n}", {"n": n}) for n in range(300)))
        if sys.argv[3] == "under way":
            global left
            left = [asyncio.create_task(navin.store.aput(ns, f"k-{n}", {"n": n})) for n in range(300, 600)]
            left.append(asyncio.create_task(navin.store.asearch(ns, query="x")))
            await asyncio.sleep(0.01)

    for _ in range(2):
        # Not in the debug mode of asyncio, which -X dev would bring: it tells of a slow moment too.
        asyncio.run(work(), debug=False)
    print(len(navin.store.search(ns, limit=300)))
"""


@pytest.mark.parametrize("left", ["nothing", "under way"])
def test_a_program_that_ends_without_closing_says_nothing(database: Database, tenant: str, left: str) -> None:
    """langgraph#6367: "Task was destroyed but it is pending!" at exit."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(ENDS), database.dsn, tenant, left]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "300\n", "")
