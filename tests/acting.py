"""A memory in which every operation needs a caller, small graphs that write to it, and what each user is left with."""

from __future__ import annotations

import asyncio
import operator
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import Runnable
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langgraph_navin import Caller, CallerUnknown, Navin, acting_as
from langgraph_navin.store import NavinStore

#: No rule places this namespace, so it lies in the caller's own partition: two callers may share its every word.
NOTES = ("notes",)


class Notes:
    """The memory of one tenant, and who owns what in it."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self._dsn = dsn
        self.tenant = f"t-{uuid.uuid4().hex}"
        self.navin = Navin.open(dsn, tenant=self.tenant, require_caller=True, **options)
        self.store = self.navin.store
        self._users: set[str] = set()

    def caller(self, user: str) -> Caller:
        self._users.add(user)
        return Caller(self.tenant, user_id=user)

    def acting(self, user: str) -> AbstractContextManager[Caller]:
        return acting_as(self.caller(user))

    def bound(self, user: str) -> NavinStore:
        return self.store.bound(self.caller(user))

    def kept(self) -> dict[str, dict[str, str]]:
        """What every user has, as `{user: {key: author}}`; it fails when anything belongs to anybody else."""
        found = {user: self._of(self.bound(user)) for user in sorted(self._users)}
        with Navin.open(self._dsn, tenant=self.tenant) as everything:
            total = len(everything.store.search((), limit=10_000))
        assert total == sum(map(len, found.values())), "something is in nobody's partition"
        return {user: items for user, items in found.items() if items}

    def _of(self, store: BaseStore) -> dict[str, str]:
        return {item.key: item.value["by"] for item in store.search(NOTES, limit=10_000)}


def theirs(users: str, keys: str) -> dict[str, dict[str, str]]:
    """What `Notes.kept` answers when each of these users wrote each of these keys."""
    return {user: dict.fromkeys(keys.split(), user) for user in sorted(users.split())}


# -- what nodes do


class State(TypedDict, total=False):
    """Whom the run is said to be for. The store must not believe it."""

    by: str
    seen: Annotated[list[str], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]


def write(store: BaseStore | None, key: str, by: str) -> None:
    """Put a note and read it back: the same words as everybody else's, and still one's own."""
    assert store is not None
    store.put(NOTES, key, {"by": by})
    item = store.get(NOTES, key)
    assert item is not None
    assert item.value == {"by": by}


async def awrite(store: BaseStore | None, key: str, by: str) -> None:
    """As `write`."""
    assert store is not None
    await store.aput(NOTES, key, {"by": by})
    item = await store.aget(NOTES, key)
    assert item is not None
    assert item.value == {"by": by}


def by_runtime(state: State, runtime: Runtime[Any]) -> State:
    write(runtime.store, "runtime", state["by"])
    return {}


def by_argument(state: State, *, store: BaseStore) -> State:
    write(store, "argument", state["by"])
    return {}


def by_config(state: State) -> State:
    write(get_store(), "config", state["by"])
    return {}


async def aby_runtime(state: State, runtime: Runtime[Any]) -> State:
    await awrite(runtime.store, "runtime", state["by"])
    return {}


async def aby_argument(state: State, *, store: BaseStore) -> State:
    # A task of the node's own, too.
    await asyncio.create_task(awrite(store, "argument", state["by"]))
    return {}


async def aby_config(state: State) -> State:
    await awrite(get_store(), "config", state["by"])
    return {}


#: The three ways a node gets its store, and the keys that they write.
SYNC_NODES: dict[str, Any] = {"runtime": by_runtime, "argument": by_argument, "config": by_config}
ASYNC_NODES: dict[str, Any] = {"runtime": aby_runtime, "argument": aby_argument, "config": aby_config}
WAYS = " ".join(SYNC_NODES)


def fan(nodes: Mapping[str, Any], **options: Any) -> Any:
    """A graph of parallel branches."""
    graph = StateGraph(State)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile(**options)


def line(nodes: Mapping[str, Any], **options: Any) -> Any:
    """A graph of one step after the other."""
    graph = StateGraph(State).add_sequence(list(nodes.items()))
    return graph.add_edge(START, next(iter(nodes))).compile(**options)


def one(node: Any, **options: Any) -> Any:
    """A graph of one node."""
    return line({"node": node}, **options)


# -- the proof


def each_their_own(notes: Notes, work: Callable[[str], Any], keys: str) -> None:
    """Users who take turns find their own notes only; when nobody acts, the work is refused and leaves nothing."""
    for user in ("alice", "bob", "alice"):
        with notes.acting(user):
            work(user)
        with pytest.raises(CallerUnknown):
            work("nobody")
    assert notes.kept() == theirs("alice bob", keys)


async def aeach_their_own(notes: Notes, work: Callable[[str], Awaitable[Any]], keys: str, *, before: str = "") -> None:
    """As `each_their_own`, for users and nobody side by side; zoe has the notes `before` already."""

    async def run(user: str) -> None:
        await work(user)

    tasks = []
    for user in ("alice", "bob", "carol"):
        with notes.acting(user):
            tasks.append(asyncio.create_task(run(user)))
        tasks.append(asyncio.create_task(run("nobody")))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), CallerUnknown] * 3, outcomes
    assert notes.kept() == theirs("alice bob carol", keys) | theirs("zoe" if before else "", before)


# -- a model for agents


class Scripted(GenericFakeChatModel):
    """A chat model that says its lines in turn, whatever its tools."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self


def calling(names: str, **arguments: str) -> AIMessage:
    """A line that calls these tools at once, with the same arguments."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name, "type": "tool_call"} for name in names.split()])


def scripted(*lines: AIMessage) -> Scripted:
    return Scripted(messages=iter([*lines, AIMessage("done")]))
