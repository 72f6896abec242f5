"""Connections: one cap for threads and event loops, and what happens when the server, a loop or a process goes away."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import psycopg
import pytest
from langgraph.store.base import BaseStore, PutOp

from databases import Database, fresh
from langgraph_navin import Navin
from langgraph_navin.engines.builtin.connections import WAITING, Connections
from langgraph_navin.engines.builtin.connections import waiting as waiting_for
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.engines.builtin.permits import Permits
from langgraph_navin.engines.builtin.session import dead
from langgraph_navin.errors import EngineRetryable, EngineUnavailable
from servers import binaries, ground

NS = ("user", "u")
PATIENCE = 20.0


@pytest.fixture(scope="module")
def database(pg18: str) -> Iterator[Database]:
    """A database of this module's own, so that its backends can be counted."""
    with fresh(pg18, migrate=True) as made:
        yield made


Opening = Callable[..., Navin]


@pytest.fixture
def opening(database: Database, tenant: str) -> Iterator[Opening]:
    """Opens a Navin on that database without maintenance: its backends are those of callers alone."""
    opened: list[Navin] = []

    def one(**settings: Any) -> Navin:
        opened.append(Navin.unprepared(dsn=database.dsn, tenant=tenant, **settings))
        return opened[-1]

    yield one
    for navin in opened:
        navin.close()
    until(lambda: backends(database) == set())


#: A descriptor that `select` doesn't know.
HIGH = 1500


def backends(database: Database) -> set[int]:
    """The server's processes that serve a Navin in this database."""
    statement = "select pid from pg_stat_activity where application_name = 'navin' and datname = current_database()"
    return {pid for (pid,) in database.rows(statement)}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def terminate(database: Database) -> int:
    """End every backend; how many there were."""
    found = database.rows(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'navin' and datname = current_database()"
    )
    until(lambda: backends(database) == set())
    return len(found)


def waiting(database: Database) -> int:
    """How many statements of ours wait for a lock."""
    statement = (
        "select count(*) from pg_stat_activity"
        " where application_name = 'navin' and datname = current_database() and wait_event_type = 'Lock'"
    )
    return int(database.value(statement))


@contextmanager
def locked(database: Database, mode: str) -> Iterator[None]:
    """Nobody else reads or writes items meanwhile, as the mode has it."""
    statement = {"read": "lock table navin.items in access exclusive mode", "write": "lock table navin.items in exclusive mode"}[mode]
    with psycopg.connect(database.dsn) as connection:
        connection.execute(statement)
        yield
        connection.rollback()


def call(store: BaseStore, colour: str, verb: str, *args: Any, **kwargs: Any) -> Any:
    """One verb of a store, in a colour."""
    if colour == "sync":
        return getattr(store, verb)(*args, **kwargs)
    return asyncio.run(getattr(store, f"a{verb}")(*args, **kwargs))


colours = pytest.mark.parametrize("colour", ["sync", "async"])


# --- the cap ----------------------------------------------------------------------------------------------------


class Meter:
    """How many connections are in use at once, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.done = 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1
                self.done += 1


def used(connections: Connections, meter: Meter, times: int) -> None:
    for _ in range(times):
        with connections.connection() as connection, meter.holding():
            connection.execute("select pg_sleep(0.002)")


async def aused(connections: Connections, meter: Meter, times: int) -> None:
    for _ in range(times):
        async with connections.aconnection() as connection:
            with meter.holding():
                await connection.execute("select pg_sleep(0.002)")


async def side_by_side(connections: Connections, meter: Meter, tasks: int, times: int) -> None:
    await asyncio.gather(*(aused(connections, meter, times) for _ in range(tasks)))


def test_threads_and_event_loops_share_one_cap(database: Database) -> None:
    connections, meter = Connections(database.dsn, cap=3), Meter()
    with ThreadPoolExecutor(8) as pool:
        work: list[Future[Any]] = [pool.submit(used, connections, meter, 20) for _ in range(4)]
        work += [pool.submit(asyncio.run, side_by_side(connections, meter, 4, 10)) for _ in range(3)]
        for one in work:
            one.result(PATIENCE)
    assert meter.done == 4 * 20 + 3 * 4 * 10
    assert meter.most == 3
    until(lambda: len(backends(database)) <= 3)
    connections.close()
    until(lambda: backends(database) == set())


@colours
def test_the_server_sees_no_more_backends_than_the_cap(opening: Opening, database: Database, colour: str) -> None:
    store = opening(connections=2).store

    def work(n: int) -> None:
        for m in range(5):
            call(store, colour, "put", NS, f"{n}-{m}", {"n": n})

    with ThreadPoolExecutor(6) as pool:
        with locked(database, "write"):
            running = [pool.submit(work, n) for n in range(6)]
            # Six want a connection, two have one, and both wait for the lock.
            until(lambda: waiting(database) == 2)
            assert {len(backends(database)) for _ in range(20)} == {2}
        for one in running:
            one.result(PATIENCE)
    assert len(store.search(NS, limit=100)) == 30


def test_idle_connections_of_one_colour_make_room_for_the_other(opening: Opening, database: Database) -> None:
    store = opening(connections=2).store
    barrier = threading.Barrier(2)

    def held(connections: Connections) -> None:
        with connections.connection():
            barrier.wait(PATIENCE)

    connections = store._service.engine.connections  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(held, [connections] * 2))
    assert len(backends(database)) == 2

    async def both() -> None:
        await asyncio.gather(store.aput(NS, "a", {}), store.aput(NS, "b", {}))
        until(lambda: len(backends(database)) <= 2)
        store.put(NS, "c", {})
        until(lambda: len(backends(database)) <= 2)

    asyncio.run(both())
    assert {item.key for item in store.search(NS)} == {"a", "b", "c"}


def test_permits_are_given_in_turn_and_none_is_lost() -> None:
    permits, order = Permits(1), list[int]()
    permits.acquire()

    def wait(n: int) -> None:
        permits.acquire()
        order.append(n)
        permits.release()

    threads = []
    for n in range(5):
        threads.append(threading.Thread(target=wait, args=(n,)))
        threads[-1].start()
        until(lambda n=n: len(permits._waiting) == n + 1)  # type: ignore[misc]
    permits.release()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2, 3, 4]
    assert permits._free == 1


def test_a_permit_for_a_loop_that_is_gone_goes_to_the_next() -> None:
    permits = Permits(1)
    permits.acquire()
    loop = asyncio.new_event_loop()
    waiter = permits.aacquire()

    async def begin() -> None:
        waiter.send(None)

    loop.run_until_complete(begin())
    loop.close()
    permits.release()
    taken = threading.Thread(target=permits.acquire, daemon=True)
    taken.start()
    taken.join(PATIENCE)
    assert not taken.is_alive()
    with pytest.raises(asyncio.CancelledError):
        waiter.throw(asyncio.CancelledError())


# --- loops and threads ------------------------------------------------------------------------------------------


def test_one_navin_serves_one_loop_after_another(opening: Opening, database: Database) -> None:
    store = opening().store
    for n in range(3):
        asyncio.run(store.aput(NS, str(n), {"n": n}))
        # A loop's connections end with it.
        until(lambda: backends(database) == set())
    assert asyncio.run(store.aget(NS, "0")).value == {"n": 0}  # type: ignore[union-attr]
    assert store.get(NS, "2").value == {"n": 2}  # type: ignore[union-attr]


def test_two_loops_in_two_threads_at_once(opening: Opening) -> None:
    store = opening(connections=3).store
    meet = threading.Barrier(2)

    async def work(name: str) -> list[str]:
        await store.aput(NS, name, {"from": name})
        await asyncio.to_thread(meet.wait, PATIENCE)
        await asyncio.gather(*(store.aput(NS, f"{name}{n}", {"n": n}) for n in range(20)))
        await asyncio.to_thread(meet.wait, PATIENCE)
        return sorted(item.key for item in await store.asearch(NS, limit=100))

    with ThreadPoolExecutor(2) as pool:
        left, right = (one.result(PATIENCE) for one in [pool.submit(asyncio.run, work(name)) for name in "ab"])
    assert left == right == sorted(["a", "b", *(f"{name}{n}" for name in "ab" for n in range(20))])


async def test_sync_calls_inside_a_running_loop(opening: Opening) -> None:
    store = opening(connections=1).store
    await store.aput(NS, "a", {"n": 1})
    store.put(NS, "b", {"n": 2})
    assert [item.key for item in store.search(NS)] == ["b", "a"]
    assert [item.key for item in await store.asearch(NS)] == ["b", "a"]


def test_a_loop_closed_without_ceremony_leaks_no_connection(opening: Opening, database: Database) -> None:
    store = opening().store
    for n in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(store.aput(NS, str(n), {}))
        loop.close()
    asyncio.run(store.aget(NS, "0"))
    until(lambda: backends(database) == set())


# --- fork -------------------------------------------------------------------------------------------------------

FORKS = """
    import asyncio, json, os, sys, warnings
    import psycopg
    from langgraph_navin import Navin

    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    dsn, tenant, prepared = sys.argv[1:]
    ns = ("user", "u")
    navin = (Navin.open if prepared == "yes" else Navin.unprepared)(dsn=dsn, tenant=tenant, connections=2)

    def pids():
        with psycopg.connect(dsn) as admin:
            return {pid for pid, in admin.execute(
                "select pid from pg_stat_activity where application_name = 'navin' and datname = current_database()")}

    navin.store.put(ns, "parent", {})
    before = pids()
    reader, writer = os.pipe()
    if os.fork() == 0:
        navin.store.put(ns, "child", {})
        asyncio.run(navin.store.aput(ns, "child-async", {}))
        os.write(writer, json.dumps([sorted(item.key for item in navin.store.search(ns)), bool(pids() - before)]).encode())
        navin.close()
        sys.exit(0)
    _, status = os.wait()
    navin.store.put(ns, "after", {})
    asyncio.run(navin.store.aput(ns, "after-async", {}))
    told = json.loads(os.read(reader, 10_000))
    print(json.dumps({"status": status, "child": told[0], "own": told[1], "kept": before <= pids(),
                      "parent": sorted(item.key for item in navin.store.search(ns))}))
    navin.close()
"""


@pytest.mark.parametrize("prepared", ["yes", "no"])
def test_a_forked_child_has_connections_of_its_own(database: Database, tenant: str, prepared: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKS), database.dsn, tenant, prepared]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "status": 0,
        "child": ["child", "child-async", "parent"],
        "own": True,
        "kept": True,
        "parent": ["after", "after-async", "child", "child-async", "parent"],
    }


# --- the server goes away ---------------------------------------------------------------------------------------


@asynccontextmanager
async def kept(store: BaseStore, colour: str, count: int) -> AsyncIterator[Callable[..., Any]]:
    """A store with so many idle connections of a colour, in a running loop."""
    connections: Connections = store._service.engine.connections  # type: ignore[attr-defined]
    if colour == "sync":
        held = [connections.connection() for _ in range(count)]
        for one in held:
            one.__enter__()
        for one in held:
            one.__exit__(None, None, None)
    else:
        aheld = [connections.aconnection() for _ in range(count)]
        for other in aheld:
            await other.__aenter__()
        for other in aheld:
            await other.__aexit__(None, None, None)

    async def verb(name: str, *args: Any) -> Any:
        return getattr(store, name)(*args) if colour == "sync" else await getattr(store, f"a{name}")(*args)

    yield verb


@colours
@pytest.mark.parametrize("first", ["read", "write", "search", "batch"])
async def test_the_next_operation_after_idle_backends_ended_succeeds(opening: Opening, database: Database, colour: str, first: str) -> None:
    async with kept(opening().store, colour, 4) as verb:
        await verb("put", NS, "k", {"n": 1})
        assert await asyncio.to_thread(terminate, database) == 4
        if first == "write":
            await verb("put", NS, "k", {"n": 2})
        elif first == "batch":
            await verb("batch", [PutOp(NS, "k", {"n": 2}), PutOp(NS, "other", None)])
        found = await verb("search", NS) if first == "search" else [await verb("get", NS, "k")]
        assert [item.value for item in found] == [{"n": 2 if first in ("write", "batch") else 1}]
        # All four were dropped with the first: nothing fails later.
        for n in range(6):
            await verb("put", NS, f"k{n}", {})
        assert len(await verb("search", NS)) == 7


@colours
def test_a_read_in_flight_is_done_again(opening: Opening, database: Database, colour: str) -> None:
    store = opening(connections=1).store
    store.put(NS, "k", {"n": 1})
    with ThreadPoolExecutor(1) as pool:
        with locked(database, "read"):
            reading = pool.submit(call, store, colour, "get", NS, "k")
            until(lambda: waiting(database) > 0)
            terminate_waiting(database)
        assert reading.result(PATIENCE).value == {"n": 1}


def terminate_waiting(database: Database) -> None:
    ended = database.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'navin' and datname = current_database() and wait_event_type = 'Lock'"
    )
    assert ended == 1


@colours
def test_a_write_in_flight_is_told_of_and_not_half_done(opening: Opening, database: Database, tenant: str, colour: str) -> None:
    store = opening().store
    store.put(NS, "a", {"n": 1})
    ops = [PutOp(NS, key, {"n": 2}) for key in "abcde"]
    with ThreadPoolExecutor(1) as pool:
        with locked(database, "write"):
            writing = pool.submit(call, store, colour, "batch", ops)
            until(lambda: waiting(database) > 0)
            terminate_waiting(database)
            with pytest.raises(EngineUnavailable, match="whether the change arrived isn't known") as failed:
                writing.result(PATIENCE)
    assert not failed.value.retryable
    assert not isinstance(failed.value, ConnectionError)
    assert [(item.key, item.value) for item in store.search(NS)] == [("a", {"n": 1})]
    assert database.value("select count(*) from navin.journal where tenant_id = %s", tenant) == 1
    call(store, colour, "batch", ops)
    assert len(store.search(NS)) == 5


@colours
def test_a_server_that_is_down_is_retryable_and_one_that_is_back_is_used(colour: str, tenant: str) -> None:
    with ground() as place:
        server = EmbeddedServer(place / "navin", _binaries=binaries(18))
        dsn = server.start()
        try:
            with Navin.open(dsn, tenant=tenant) as navin:
                call(navin.store, colour, "put", NS, "k", {"n": 1})
                server.stop()
                for verb, args in (("get", (NS, "k")), ("put", (NS, "k", {"n": 2}))):
                    with pytest.raises(EngineRetryable, match="check that the server runs") as away:
                        call(navin.store, colour, verb, *args)
                    assert away.value.retryable
                server = EmbeddedServer(place / "navin", _binaries=binaries(18))
                assert server.start() == dsn
                assert call(navin.store, colour, "get", NS, "k").value == {"n": 1}
                call(navin.store, colour, "put", NS, "k", {"n": 2})
                assert call(navin.store, colour, "get", NS, "k").value == {"n": 2}
        finally:
            server.stop()


# --- cancellation -----------------------------------------------------------------------------------------------


async def test_a_cancelled_task_gives_its_permit_back(opening: Opening, database: Database) -> None:
    store = opening(connections=2).store
    for _ in range(5):
        with locked(database, "write"):
            tasks = [asyncio.create_task(store.aput(NS, str(n), {})) for n in range(6)]
            # Two hold a connection, four wait for one.
            await asyncio.to_thread(until, lambda: waiting(database) > 0)
            for task in tasks:
                task.cancel()
            ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
            assert [type(one) for one in ended] == [asyncio.CancelledError] * 6
    await asyncio.wait_for(asyncio.gather(*(store.aput(NS, f"after{n}", {}) for n in range(6))), PATIENCE)
    assert len(await store.asearch(NS, limit=100)) == 6
    assert store._service.engine.connections._permits._free == 2  # type: ignore[attr-defined]


async def test_a_task_that_is_cancelled_as_its_turn_comes_hands_the_permit_on() -> None:
    permits = Permits(1)
    await permits.aacquire()
    first, second = asyncio.create_task(permits.aacquire()), asyncio.create_task(permits.aacquire())
    await asyncio.sleep(0)
    permits.release()
    first.cancel()
    await asyncio.wait_for(second, PATIENCE)
    with pytest.raises(asyncio.CancelledError):
        await first
    permits.release()
    assert permits._free == 1


async def test_a_task_cancelled_after_it_was_granted_gives_the_permit_back() -> None:
    permits = Permits(1)
    await permits.aacquire()
    task = asyncio.create_task(permits.aacquire())
    await asyncio.sleep(0)
    permits.release()
    # The grant runs now; the task would wake up in the round after it.
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert permits._free == 1


async def test_a_connection_that_was_cancelled_is_not_used_again(opening: Opening, database: Database) -> None:
    store = opening(connections=1).store
    await store.aput(NS, "k", {"n": 1})
    with locked(database, "read"):
        task = asyncio.create_task(store.aget(NS, "k"))
        await asyncio.to_thread(until, lambda: waiting(database) > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    found = await asyncio.wait_for(store.aget(NS, "k"), PATIENCE)
    assert found is not None
    assert found.value == {"n": 1}


# --- closed -----------------------------------------------------------------------------------------------------


@colours
def test_a_closed_navin_says_so(opening: Opening, database: Database, colour: str) -> None:
    navin = opening()
    call(navin.store, colour, "put", NS, "k", {})
    navin.close()
    navin.close()
    until(lambda: backends(database) == set())
    for verb, args in (("get", (NS, "k")), ("put", (NS, "k", {})), ("search", (NS,)), ("delete", (NS, "k"))):
        with pytest.raises(EngineUnavailable, match="this Navin is closed; open it again"):
            call(navin.store, colour, verb, *args)
    assert database.value("select count(*) from navin.items where key = 'k' and tenant_id = %s", navin._settings.tenant) == 1


def test_a_connection_in_use_ends_when_it_is_given_back(database: Database) -> None:
    connections = Connections(database.dsn, cap=2)
    with connections.connection() as connection:
        connections.close()
        assert connection.execute("select 1").fetchone() == (1,)
    until(lambda: backends(database) == set())


def test_an_interrupt_while_connecting_leaks_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*dsn: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    connections = Connections(database.dsn, cap=1)
    monkeypatch.setattr(psycopg, "connect", interrupted)
    with pytest.raises(KeyboardInterrupt), connections.connection():
        pytest.fail("there is no connection to give")
    monkeypatch.undo()
    assert (connections._open, connections._permits._free) == (0, 1)
    with connections.connection() as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    connections.close()


async def test_a_dsn_that_does_not_answer_leaks_nothing() -> None:
    connections = Connections("host=127.0.0.1 port=1 user=nobody connect_timeout=5", cap=1)
    for _ in range(3):
        with pytest.raises(EngineRetryable), connections.connection():
            pytest.fail("there is no connection to give")
        with pytest.raises(EngineRetryable):
            await connections.aconnection().__aenter__()
    assert (connections._open, connections._permits._free) == (0, 1)


# --- waiting ----------------------------------------------------------------------------------------------------


def test_a_lost_host_is_not_waited_for_for_ever() -> None:
    assert waiting_for("postgresql://h/d") == WAITING
    kept = {"connect_timeout", "keepalives_interval", "keepalives_count"}
    assert waiting_for("postgresql://h/d?keepalives_idle=5&tcp_user_timeout=1000").keys() == kept


def test_a_high_descriptor_is_not_taken_for_dead() -> None:
    class High:
        def fileno(self) -> int:
            return HIGH

    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.dup2(ours.fileno(), HIGH)
        try:
            assert not dead(cast("Any", High()))
            theirs.close()
            assert dead(cast("Any", High()))
        finally:
            os.close(HIGH)
