"""A graph over a store that is bound to a caller: for that caller wherever it runs, and never for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.runtime import Runtime

from acting import (
    ASYNC_NODES,
    SYNC_NODES,
    WAYS,
    Notes,
    State,
    aby_runtime,
    awrite,
    by_runtime,
    calling,
    fan,
    line,
    one,
    scripted,
    theirs,
    write,
)
from langgraph_navin import Caller, CallerUnknown, acting_as


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


USERS = ("alice", "bob", "carol")


def for_each(notes: Notes, graph: Any) -> dict[str, Any]:
    """A copy of the graph for each user, by LangGraph's public means."""
    return {user: graph.copy(update={"store": notes.bound(user)}) for user in USERS}


def in_turn(graphs: dict[str, Any]) -> None:
    for user, graph in graphs.items():
        graph.invoke({"by": user})


async def at_once(graphs: dict[str, Any]) -> None:
    await asyncio.gather(*(graph.ainvoke({"by": user}) for user, graph in graphs.items()))


# -- copies of one graph


def test_sync_nodes(notes: Notes) -> None:
    in_turn(for_each(notes, fan(SYNC_NODES, store=notes.store)))
    assert notes.kept() == theirs("alice bob carol", WAYS)


@pytest.mark.parametrize("nodes", [ASYNC_NODES, SYNC_NODES], ids=["async nodes", "sync nodes"])
async def test_nodes_of_an_async_run(notes: Notes, nodes: dict[str, Any]) -> None:
    await at_once(for_each(notes, fan(nodes, store=notes.store)))
    assert notes.kept() == theirs("alice bob carol", WAYS)


def test_a_copy_leaves_its_original_unbound(notes: Notes) -> None:
    graph = fan(SYNC_NODES, store=notes.store)
    in_turn(for_each(notes, graph))
    with pytest.raises(CallerUnknown):
        graph.invoke({"by": "alice"})


def test_a_store_passed_to_invoke_binds_nobody(notes: Notes) -> None:
    # LangGraph ignores it without a word.
    graph: Any = fan(SYNC_NODES, store=notes.store)
    with pytest.raises(CallerUnknown):
        graph.invoke({"by": "alice"}, store=notes.bound("alice"))
    assert notes.kept() == {}


# -- graphs inside graphs: the outer run's store is everybody's


def test_a_subgraph(notes: Notes) -> None:
    # The inner graph's own store, bound to somebody else, isn't asked.
    inner = fan(SYNC_NODES, store=notes.bound("dave"))
    in_turn(for_each(notes, one(inner, store=notes.store)))
    assert notes.kept() == theirs("alice bob carol", WAYS)


def test_a_graph_invoked_inside_a_node(notes: Notes) -> None:
    inner = fan(SYNC_NODES, store=notes.bound("dave"))
    in_turn(for_each(notes, one(lambda state: inner.invoke(state), store=notes.store)))
    assert notes.kept() == theirs("alice bob carol", WAYS)


async def test_a_graph_invoked_inside_an_async_node(notes: Notes) -> None:
    inner = fan(ASYNC_NODES, store=notes.bound("dave"))

    async def node(state: State) -> Any:
        return await inner.ainvoke(state)

    await at_once(for_each(notes, one(node, store=notes.store)))
    assert notes.kept() == theirs("alice bob carol", WAYS)


def test_an_entrypoint_and_its_tasks(notes: Notes) -> None:
    @task
    def step(by: str) -> None:
        write(get_store(), "task", by)

    @entrypoint(store=notes.store)
    def work(state: State) -> None:
        write(get_store(), "entrypoint", state["by"])
        step(state["by"]).result()

    in_turn(for_each(notes, work))
    assert notes.kept() == theirs("alice bob carol", "entrypoint task")


# -- agents


@tool
def note(by: str) -> str:
    """Note something."""
    write(get_store(), "note", by)
    return "noted"


@tool("note")
async def anote(by: str) -> str:
    """Note something."""
    await awrite(get_store(), "note", by)
    return "noted"


GO: Any = {"messages": [("user", "go")]}


def agents(notes: Notes, own: Any) -> dict[str, Any]:
    return {
        user: create_agent(scripted(calling("note", by=user)), tools=[own], store=notes.store).copy(update={"store": notes.bound(user)})
        for user in USERS
    }


def test_agents(notes: Notes) -> None:
    for agent in agents(notes, note).values():
        agent.invoke(GO)
    assert notes.kept() == theirs("alice bob carol", "note")


@pytest.mark.parametrize("own", [anote, note], ids=["async tool", "sync tool"])
async def test_async_agents(notes: Notes, own: Any) -> None:
    await asyncio.gather(*(agent.ainvoke(GO) for agent in agents(notes, own).values()))
    assert notes.kept() == theirs("alice bob carol", "note")


# -- a bound store and `acting_as`


def test_a_bound_store_and_an_actor_that_agree_are_one(notes: Notes) -> None:
    graphs = for_each(notes, fan(SYNC_NODES, store=notes.store))
    for user, graph in graphs.items():
        with notes.acting(user):
            graph.invoke({"by": user})
    assert notes.kept() == theirs("alice bob carol", WAYS)


@pytest.mark.parametrize("node", [by_runtime, aby_runtime], ids=["sync node", "async node"])
async def test_a_bound_store_and_an_actor_that_disagree_are_refused(notes: Notes, node: Any) -> None:
    graph = one(node, store=notes.bound("alice"))
    with notes.acting("bob"), pytest.raises(CallerUnknown, match="disagree"):
        await graph.ainvoke({"by": "bob"})
    await graph.ainvoke({"by": "alice"})
    assert notes.kept() == theirs("alice", "runtime")


def test_one_user_in_another_session_disagrees(notes: Notes) -> None:
    here, there = (Caller(notes.tenant, user_id="alice", session_id=session) for session in ("1", "2"))
    with acting_as(there), pytest.raises(CallerUnknown, match="disagree"):
        one(by_runtime, store=notes.store.bound(here)).invoke({"by": "alice"})


def test_a_node_that_acts_as_another_is_refused_a_bound_store(notes: Notes) -> None:
    def node(state: State, runtime: Runtime[Any]) -> State:
        with notes.acting("bob"), pytest.raises(CallerUnknown, match="disagree"):
            write(runtime.store, "inside", "alice")
        write(runtime.store, "after", "alice")
        return {}

    one(node, store=notes.bound("alice")).invoke({})
    assert notes.kept() == theirs("alice", "after")


def test_a_view_of_a_view_is_of_the_last_one_named(notes: Notes) -> None:
    view = notes.bound("alice").bound(notes.caller("bob"))
    line(SYNC_NODES, store=view).invoke({"by": "bob"})
    assert notes.kept() == theirs("bob", WAYS)


# -- views of agents


def test_an_agents_view_is_its_callers_and_of_its_agent(notes: Notes) -> None:
    def node(state: State, runtime: Runtime[Any]) -> State:
        write(runtime.store, "k", state["by"])
        assert runtime.store is not None
        runtime.store.put(("agent", "writer"), state["by"], {})
        return {}

    writer, reader = (notes.navin.agent(name).store for name in ("writer", "reader"))
    graph = one(node, store=writer)
    for user in ("alice", "bob"):
        graph.copy(update={"store": writer.bound(notes.caller(user))}).invoke({"by": user})
    # What is a user's own is read by every agent of that user, and what is an agent's own by every user of that agent.
    with notes.acting("alice"):
        assert [item.value for item in reader.search(("notes",))] == [{"by": "alice"}]
        assert sorted(item.key for item in writer.search(("agent", "writer"))) == ["alice", "bob"]
