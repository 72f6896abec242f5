"""Work that leaves its caller's context is refused, never done for somebody else; work that takes it along goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.config import get_store
from langgraph.runtime import Runtime

from acting import Notes, State, aeach_their_own, awrite, each_their_own, one, theirs, write
from langgraph_navin import CallerUnknown

Work = Callable[[], Any]
Way = Callable[[Work], Any]


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


# -- threads that a node starts


def on_a_thread(work: Work) -> Any:
    outcome: Future[Any] = Future()

    def target() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    thread = Thread(target=target)
    thread.start()
    thread.join()
    return outcome.result()


def in_a_pool(work: Work) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def in_a_loop(work: Work) -> Any:
    async def main() -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    return on_a_thread(partial(asyncio.run, main()))


started = pytest.mark.parametrize("way", [on_a_thread, in_a_pool, in_a_loop])


def node_that(way: Way, *, copied: bool = False) -> Any:
    """A graph's node that writes by way of a thread."""

    def node(state: State, runtime: Runtime[Any]) -> State:
        work = partial(write, runtime.store, "k", state["by"])
        way(partial(copy_context().run, work) if copied else work)
        return {}

    return node


@started
def test_a_bare_thread_of_a_node_is_of_nobody(notes: Notes, way: Way) -> None:
    graph = one(node_that(way), store=notes.store)
    with notes.acting("alice"), pytest.raises(CallerUnknown):
        graph.invoke({"by": "alice"})
    assert notes.kept() == {}


@started
def test_a_thread_that_takes_the_context_along_is_its_callers(notes: Notes, way: Way) -> None:
    graph = one(node_that(way, copied=True), store=notes.store)
    each_their_own(notes, lambda user: graph.invoke({"by": user}), "k")


@started
def test_a_bound_store_is_its_callers_on_any_thread(notes: Notes, way: Way) -> None:
    graph = one(node_that(way), store=notes.store)
    for user in ("alice", "bob"):
        graph.copy(update={"store": notes.bound(user)}).invoke({"by": user})
    assert notes.kept() == theirs("alice bob", "k")


def test_a_threads_earlier_work_for_another_is_forgotten(notes: Notes) -> None:
    with ThreadPoolExecutor(1) as pool:

        def node(state: State, runtime: Runtime[Any]) -> State:
            pool.submit(write, runtime.store, "later", "bob").result()
            return {}

        def for_alice() -> None:
            with notes.acting("alice"):
                write(notes.store, "k", "alice")

        # The thread is begun under alice, acts for her itself, and runs a job in her context.
        with notes.acting("alice"):
            pool.submit(for_alice).result()
            pool.submit(copy_context().run, write, notes.store, "copied", "alice").result()
        with notes.acting("bob"), pytest.raises(CallerUnknown):
            one(node, store=notes.store).invoke({})
    assert notes.kept() == theirs("alice", "k copied")


# -- leaving an event loop


async def test_run_in_executor_without_a_context_is_of_nobody(notes: Notes) -> None:
    async def node(state: State, runtime: Runtime[Any]) -> State:
        await asyncio.get_running_loop().run_in_executor(None, write, runtime.store, "k", state["by"])
        return {}

    graph = one(node, store=notes.store)
    with notes.acting("alice"):
        # The loop's own pool of threads has served alice before bob comes.
        await asyncio.to_thread(write, notes.store, "before", "alice")
        with pytest.raises(CallerUnknown):
            await graph.ainvoke({"by": "alice"})
    with notes.acting("bob"), pytest.raises(CallerUnknown):
        await graph.ainvoke({"by": "bob"})
    assert notes.kept() == theirs("alice", "before")


async def test_to_thread_is_its_callers(notes: Notes) -> None:
    async def node(state: State, runtime: Runtime[Any]) -> State:
        await asyncio.to_thread(write, runtime.store, "k", state["by"])
        return {}

    graph = one(node, store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), "k")


async def test_a_coroutine_handed_to_the_loop_from_a_bare_thread_is_of_nobody(notes: Notes) -> None:
    loop = asyncio.get_running_loop()

    def hand_over() -> None:
        asyncio.run_coroutine_threadsafe(awrite(notes.store, "k", "alice"), loop).result()

    with notes.acting("alice"):
        with pytest.raises(CallerUnknown):
            await loop.run_in_executor(None, hand_over)
        await asyncio.to_thread(hand_over)
    assert notes.kept() == theirs("alice", "k")


# -- LangChain's and LangMem's threads


def three(by: str) -> list[dict[str, str]]:
    """Input for a runnable that writes: three notes of one user."""
    return [{"key": key, "by": by} for key in ("a", "b", "c")]


def writing(notes: Notes) -> RunnableLambda[dict[str, str], None]:
    def work(asked: dict[str, str]) -> None:
        write(notes.store, asked["key"], asked["by"])

    return RunnableLambda(work)


def awriting(notes: Notes) -> RunnableLambda[dict[str, str], None]:
    async def work(asked: dict[str, str]) -> None:
        await awrite(notes.store, asked["key"], asked["by"])

    return RunnableLambda(work)


def test_a_runnables_batch(notes: Notes) -> None:
    each_their_own(notes, lambda user: writing(notes).batch(three(user)), "a b c")


@pytest.mark.parametrize("runnable", [awriting, writing], ids=["async", "sync"])
async def test_a_runnables_async_batch(notes: Notes, runnable: Callable[[Notes], Any]) -> None:
    await aeach_their_own(notes, lambda user: runnable(notes).abatch(three(user)), "a b c")


class Reflector(RunnableLambda[Any, Any]):
    """What LangMem's executor runs in its background thread: it finds the store as its own managers do."""

    namespace = ("notes",)

    def __init__(self) -> None:
        super().__init__(lambda by: write(get_store(), "reflected", by))


def test_langmems_background_thread(notes: Notes) -> None:
    from langmem import ReflectionExecutor

    with notes.acting("alice"):
        lost, bound = ReflectionExecutor(Reflector(), store=notes.store), ReflectionExecutor(Reflector(), store=notes.bound("alice"))

    def submits(executor: Any) -> Any:
        return one(lambda state: {"seen": [executor.submit(state["by"])]}, store=notes.store)

    try:
        for user in ("alice", "bob"):
            with notes.acting(user):
                submitted = submits(lost).invoke({"by": user})["seen"][0]
            with pytest.raises(CallerUnknown):
                submitted.result(timeout=30)
        assert notes.kept() == {}
        # Submitted by bob, and still of the one whom its store is bound to.
        with notes.acting("bob"):
            submits(bound).invoke({"by": "alice"})["seen"][0].result(timeout=30)
        assert notes.kept() == theirs("alice", "reflected")
    finally:
        for executor in (lost, bound):
            executor.shutdown(wait=False)
        for executor in (lost, bound):
            executor.shutdown()
