"""Tools know whom they act for: on ToolNode's threads, in either colour, in agents, and behind middleware."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore

from acting import Notes, aeach_their_own, awrite, calling, each_their_own, one, scripted, theirs, write
from langgraph_navin import CallerUnknown, PolicyDenied


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


@tool
def injected(by: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Note by an injected store."""
    write(store, "injected", by)
    return "noted"


@tool
def runtime(by: str, runtime: ToolRuntime) -> str:
    """Note by the runtime's store."""
    write(runtime.store, "runtime", by)
    return "noted"


@tool
def config(by: str) -> str:
    """Note by the context's store."""
    write(get_store(), "config", by)
    return "noted"


@tool("injected")
async def ainjected(by: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Note by an injected store."""
    await awrite(store, "injected", by)
    return "noted"


@tool("runtime")
async def aruntime(by: str, runtime: ToolRuntime) -> str:
    """Note by the runtime's store."""
    await awrite(runtime.store, "runtime", by)
    return "noted"


@tool("config")
async def aconfig(by: str) -> str:
    """Note by the context's store."""
    await awrite(get_store(), "config", by)
    return "noted"


SYNC: list[Any] = [injected, runtime, config]
ASYNC: list[Any] = [ainjected, aruntime, aconfig]
NAMES = "injected runtime config"
GO: Any = {"messages": [("user", "go")]}
coloured = pytest.mark.parametrize("tools", [ASYNC, SYNC], ids=["async tools", "sync tools"])


def asked(user: str) -> dict[str, Any]:
    """Input for a ToolNode: three tools at once."""
    return {"messages": [calling(NAMES, by=user)]}


# -- ToolNode


def test_sync_tools(notes: Notes) -> None:
    graph = one(ToolNode(SYNC), store=notes.store)
    each_their_own(notes, lambda user: graph.invoke(asked(user)), NAMES)


@coloured
async def test_tools_of_an_async_run(notes: Notes, tools: list[Any]) -> None:
    graph = one(ToolNode(tools), store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke(asked(user)), NAMES)


@coloured
async def test_tools_of_a_store_first_used_by_another(notes: Notes, tools: list[Any]) -> None:
    with notes.acting("zoe"):
        await awrite(notes.store, "first", "zoe")
    graph = one(ToolNode(tools), store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke(asked(user)), NAMES, before="first")


def test_a_tool_nodes_error_handler_tells_the_model_of_its_own_refusal_only(notes: Notes) -> None:
    @tool
    def peek(user: str, runtime: ToolRuntime) -> str:
        """Read a user's memories."""
        assert runtime.store is not None
        return str([item.key for item in runtime.store.search(("user", user))])

    node = ToolNode([*SYNC, peek], handle_tool_errors=lambda error: type(error).__name__)
    line = calling(NAMES, by="alice")
    line.tool_calls.append({"name": "peek", "args": {"user": "bob"}, "id": "peek", "type": "tool_call"})
    with notes.acting("bob"):
        write(notes.store, "k", "bob")
    with notes.acting("alice"):
        answers = one(node, store=notes.store).invoke({"messages": [line]})["messages"][1:]
    assert [answer.content for answer in answers] == ["noted", "noted", "noted", "PolicyDenied"]
    assert notes.kept() == theirs("alice", NAMES) | theirs("bob", "k")


# -- agents


def agent(notes: Notes, tools: list[Any], user: str, **options: Any) -> Any:
    return create_agent(scripted(calling(NAMES, by=user)), tools=tools, **{"store": notes.store, **options})


def test_an_agent(notes: Notes) -> None:
    each_their_own(notes, lambda user: agent(notes, SYNC, user).invoke(GO), NAMES)


@coloured
async def test_an_async_agent(notes: Notes, tools: list[Any]) -> None:
    await aeach_their_own(notes, lambda user: agent(notes, tools, user).ainvoke(GO), NAMES)


class Everywhere(AgentMiddleware):
    """Writes at each of the places where a middleware is called."""

    def __init__(self, by: str) -> None:
        self.by = by

    def before_agent(self, state: Any, runtime: Any) -> None:
        write(runtime.store, "before_agent", self.by)

    def after_model(self, state: Any, runtime: Any) -> None:
        write(runtime.store, "after_model", self.by)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        write(request.runtime.store, "wrap_model_call", self.by)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        await awrite(request.runtime.store, "wrap_model_call", self.by)
        return await handler(request)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        write(request.runtime.store, "wrap_tool_call", self.by)
        return handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        await awrite(request.runtime.store, "wrap_tool_call", self.by)
        return await handler(request)


PLACES = f"before_agent after_model wrap_model_call wrap_tool_call {NAMES}"


def test_an_agents_middleware(notes: Notes) -> None:
    each_their_own(notes, lambda user: agent(notes, SYNC, user, middleware=[Everywhere(user)]).invoke(GO), PLACES)


async def test_an_async_agents_middleware(notes: Notes) -> None:
    work = lambda user: agent(notes, ASYNC, user, middleware=[Everywhere(user)]).ainvoke(GO)  # noqa: E731
    await aeach_their_own(notes, work, PLACES)


# -- a middleware that says who acts


class ActsForTools(AgentMiddleware):
    """Runs every tool as one user."""

    def __init__(self, notes: Notes, user: str) -> None:
        self.acting = lambda: notes.acting(user)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        with self.acting():
            return handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        with self.acting():
            return await handler(request)


class BindsTools(AgentMiddleware):
    """Hands every tool a store that is bound to one user."""

    def __init__(self, notes: Notes, user: str) -> None:
        self.store = notes.bound(user)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return handler(dataclasses.replace(request, runtime=dataclasses.replace(request.runtime, store=self.store)))


def test_a_middleware_may_act_for_its_tools(notes: Notes) -> None:
    for user in ("alice", "bob"):
        agent(notes, SYNC, user, middleware=[ActsForTools(notes, user)]).invoke(GO)
    assert notes.kept() == theirs("alice bob", NAMES)


async def test_a_middleware_may_act_for_its_async_tools(notes: Notes) -> None:
    for user in ("alice", "bob"):
        await agent(notes, ASYNC, user, middleware=[ActsForTools(notes, user)]).ainvoke(GO)
    assert notes.kept() == theirs("alice bob", NAMES)


def test_a_middleware_may_bind_the_store_of_its_tools(notes: Notes) -> None:
    # `get_store()` goes on giving the agent's own store, and that one is told of no caller.
    model = scripted(calling("injected runtime", by="alice"), calling("config", by="alice"))
    with pytest.raises(CallerUnknown):
        create_agent(model, tools=SYNC, store=notes.store, middleware=[BindsTools(notes, "alice")]).invoke(GO)
    assert notes.kept() == theirs("alice", "injected runtime")


# -- LangMem's tools take their namespace from what a client sends


@pytest.mark.parametrize("namespace", [("notes",), ("memories", "{langgraph_user_id}")], ids=["fixed", "of the client"])
def test_langmems_tools_write_to_the_callers_own(notes: Notes, namespace: tuple[str, ...]) -> None:
    from langmem import create_manage_memory_tool, create_search_memory_tool

    tools = [create_manage_memory_tool(namespace=namespace), create_search_memory_tool(namespace=namespace)]
    config: Any = {"configurable": {"langgraph_user_id": "alice"}}
    for user in ("alice", "bob"):
        model = scripted(calling("manage_memory", content=f"of {user}"), calling("search_memory", query="of"))
        with notes.acting(user):
            state = create_agent(model, tools=tools, store=notes.store).invoke(GO, config)
        answers = [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]
        assert f"of {user}" in answers[1]
        assert answers[1].count('"content":') == 1


def test_langmems_tools_reach_nobody_elses_partition(notes: Notes) -> None:
    from langmem import create_manage_memory_tool

    tools = [create_manage_memory_tool(namespace=("user", "{langgraph_user_id}"))]
    model = scripted(calling("manage_memory", content="of bob"))
    with notes.acting("bob"), pytest.raises(PolicyDenied, match="user_partition"):
        create_agent(model, tools=tools, store=notes.store).invoke(GO, {"configurable": {"langgraph_user_id": "alice"}})
    assert list(notes.bound("alice").search(("user", "alice"))) == []
