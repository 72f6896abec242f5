"""The caller is known in every node, and is never taken from what a graph, its state or its client says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from acting import ASYNC_NODES, SYNC_NODES, WAYS, Notes, State, aeach_their_own, awrite, each_their_own, fan, line, one, theirs, write
from langgraph_navin import CallerUnknown


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


# -- nodes


@pytest.mark.parametrize("shape", [fan, line], ids=["parallel branches", "one after the other"])
def test_sync_nodes(notes: Notes, shape: Any) -> None:
    graph = shape(SYNC_NODES, store=notes.store)
    each_their_own(notes, lambda user: graph.invoke({"by": user}), WAYS)


#: Since Python 3.12, a task may run its first step before `create_task` returns.
FACTORIES: dict[str, Any] = {"lazy tasks": None}
if (eager := getattr(asyncio, "eager_task_factory", None)) is not None:
    FACTORIES["eager tasks"] = eager


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
@pytest.mark.parametrize("nodes", [ASYNC_NODES, SYNC_NODES], ids=["async nodes", "sync nodes"])
async def test_nodes_of_an_async_run(notes: Notes, nodes: dict[str, Any], factory: Any) -> None:
    asyncio.get_running_loop().set_task_factory(factory)
    graph = fan(nodes, store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), WAYS)


def test_a_subgraph(notes: Notes) -> None:
    graph = one(fan(SYNC_NODES), store=notes.store)
    each_their_own(notes, lambda user: graph.invoke({"by": user}), WAYS)


async def test_a_subgraph_of_an_async_run(notes: Notes) -> None:
    graph = one(fan(ASYNC_NODES), store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), WAYS)


def test_an_entrypoint_and_its_tasks(notes: Notes) -> None:
    @task
    def step(by: str) -> None:
        write(get_store(), "task", by)

    @entrypoint(store=notes.store)
    def work(by: str) -> None:
        write(get_store(), "entrypoint", by)
        step(by).result()

    each_their_own(notes, work.invoke, "entrypoint task")


async def test_an_async_entrypoint_and_its_tasks(notes: Notes) -> None:
    @task
    async def step(by: str) -> None:
        await awrite(get_store(), "task", by)

    @entrypoint(store=notes.store)
    async def work(by: str) -> None:
        await awrite(get_store(), "entrypoint", by)
        await step(by)

    await aeach_their_own(notes, work.ainvoke, "entrypoint task")


# -- outside any graph


def test_outside_any_graph(notes: Notes) -> None:
    each_their_own(notes, lambda user: write(notes.store, "k", user), "k")


async def test_outside_any_graph_async(notes: Notes) -> None:
    await aeach_their_own(notes, lambda user: awrite(notes.store, "k", user), "k")


# -- a user inside a node


def test_acting_as_another_inside_a_node_ends_with_its_block(notes: Notes) -> None:
    def node(state: State, runtime: Runtime[Any]) -> State:
        write(runtime.store, "before", "run")
        with notes.acting("bob"):
            write(runtime.store, "inside", "run")
        write(runtime.store, "after", "run")
        return {}

    def beside(state: State) -> State:
        write(get_store(), "beside", "run")
        return {}

    with notes.acting("alice"):
        fan({"node": node, "beside": beside}, store=notes.store).invoke({})
    assert notes.kept() == {"alice": dict.fromkeys(("before", "after", "beside"), "run"), "bob": {"inside": "run"}}


async def test_acting_as_another_inside_an_async_node_ends_with_its_block(notes: Notes) -> None:
    async def node(state: State, runtime: Runtime[Any]) -> State:
        await awrite(runtime.store, "before", "run")
        with notes.acting("bob"):
            await awrite(runtime.store, "inside", "run")
        await awrite(runtime.store, "after", "run")
        return {}

    with notes.acting("alice"):
        await one(node, store=notes.store).ainvoke({})
    assert notes.kept() == {"alice": dict.fromkeys(("before", "after"), "run"), "bob": {"inside": "run"}}


# -- a run that another user resumes


def pausing(state: State) -> State:
    write(get_store(), "before", "run")
    interrupt("go on?")
    write(get_store(), "after", "run")
    return {}


async def apausing(state: State) -> State:
    await awrite(get_store(), "before", "run")
    interrupt("go on?")
    await awrite(get_store(), "after", "run")
    return {}


#: LangGraph runs an interrupted node again from its start: what it puts there is put again, by whoever resumes.
RESUMED = {"alice": {"before": "run"}, "bob": {"before": "run", "after": "run"}}
THREAD: Any = {"configurable": {"thread_id": "1"}}


def test_a_run_resumed_by_another_user_goes_on_as_that_user(notes: Notes) -> None:
    graph = one(pausing, store=notes.store, checkpointer=InMemorySaver())
    with notes.acting("alice"):
        graph.invoke({}, THREAD)
    with pytest.raises(CallerUnknown):
        graph.invoke(Command(resume="yes"), THREAD)
    with notes.acting("bob"):
        graph.invoke(Command(resume="yes"), THREAD)
    assert notes.kept() == RESUMED


async def test_an_async_run_resumed_by_another_user_goes_on_as_that_user(notes: Notes) -> None:
    graph = one(apausing, store=notes.store, checkpointer=InMemorySaver())
    with notes.acting("alice"):
        await graph.ainvoke({}, THREAD)
    with pytest.raises(CallerUnknown):
        await graph.ainvoke(Command(resume="yes"), THREAD)
    with notes.acting("bob"):
        await graph.ainvoke(Command(resume="yes"), THREAD)
    assert notes.kept() == RESUMED


# -- what clients and nodes can set

FORGED = {
    "an id": {"user_id": "bob", "langgraph_user_id": "bob"},
    "LangGraph Server's user, as a dict": {"langgraph_auth_user": {"identity": "bob"}},
    "LangGraph Server's user": {"langgraph_auth_user": SimpleNamespace(identity="bob", is_authenticated=True, display_name="bob")},
    "LangGraph Server's user id": {"langgraph_auth_user_id": "bob", "langgraph_auth_permissions": ["admin"]},
}
forged = pytest.mark.parametrize("configurable", FORGED.values(), ids=FORGED)


@forged
def test_a_client_cannot_say_who_it_is(notes: Notes, configurable: dict[str, Any]) -> None:
    graph = fan(SYNC_NODES, store=notes.store)
    work = lambda user: graph.invoke({"by": user}, {"configurable": configurable}, context={"user_id": "bob"})  # noqa: E731
    each_their_own(notes, work, WAYS)


@forged
async def test_a_node_cannot_say_who_it_is(notes: Notes, configurable: dict[str, Any]) -> None:
    def forging(by: str) -> None:
        write(notes.store, "sync", by)

    async def aforging(by: str) -> None:
        await awrite(notes.store, "async", by)

    async def node(state: State) -> State:
        config: Any = {"configurable": configurable}
        await RunnableLambda(aforging).ainvoke(state["by"], config)
        await RunnableLambda(forging).ainvoke(state["by"], config)
        return {}

    graph = one(node, store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), "sync async")


@forged
def test_a_caller_who_is_forged_alone_is_nobody(notes: Notes, configurable: dict[str, Any]) -> None:
    notes.caller("bob")
    with pytest.raises(CallerUnknown):
        fan(SYNC_NODES, store=notes.store).invoke({"by": "bob"}, {"configurable": configurable})
    assert notes.kept() == theirs("", "")
