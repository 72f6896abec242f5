"""Many callers at once, under the same words: none sees another's, and a refusal is only its own caller's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import copy_context
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import Send

from acting import ASYNC_NODES, NOTES, SYNC_NODES, WAYS, Notes, State, aeach_their_own, awrite, fan, one, theirs, write
from langgraph_navin import CallerUnknown, InvalidNamespace, InvalidRequest, Navin, PolicyDenied


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


MANY = 50
USERS = [f"u{n}" for n in range(MANY)]
EVERYBODY = " ".join(USERS)
#: Asks for another's memories; the other 49 don't.
BAD = "u13"


def peek(store: BaseStore | None, user: str) -> None:
    """Only BAD reaches for another's partition."""
    assert store is not None
    store.search(("user", "u1" if user == BAD else user))


async def apeek(store: BaseStore | None, user: str) -> None:
    assert store is not None
    await store.asearch(("user", "u1" if user == BAD else user))


def sees_its_own(found: Iterable[Any], user: str) -> str:
    """The keys found, all of them this user's."""
    items = list(found)
    assert {item.value["by"] for item in items} == {user}
    return " ".join(sorted(item.key for item in items))


# -- one graph, a branch for each caller


def branches(node: Any, store: BaseStore) -> Any:
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_conditional_edges(START, lambda state: [Send("node", {"by": user}) for user in USERS], ["node"])
    return graph.compile(store=store)


def test_branches_with_a_caller_each(notes: Notes) -> None:
    everyone_wrote = threading.Barrier(MANY)

    def node(state: State, runtime: Runtime[Any]) -> State:
        user, store = state["by"], runtime.store
        with notes.acting(user):
            write(store, "k", user)
            everyone_wrote.wait(timeout=60)
            assert store is not None
            assert sees_its_own(store.search(NOTES), user) == "k"
            try:
                peek(store, user)
            except PolicyDenied as refused:
                return {"seen": [f"{user} {refused.details['rule']}"]}
        return {}

    seen = branches(node, notes.store).invoke({}, {"max_concurrency": MANY})["seen"]
    assert seen == [f"{BAD} user_partition"]
    assert notes.kept() == theirs(EVERYBODY, "k")


async def test_async_branches_with_a_caller_each(notes: Notes) -> None:
    everyone_wrote = asyncio.Barrier(MANY)

    async def node(state: State, runtime: Runtime[Any]) -> State:
        user, store = state["by"], runtime.store
        with notes.acting(user):
            await awrite(store, "k", user)
            await everyone_wrote.wait()
            assert store is not None
            assert sees_its_own(await store.asearch(NOTES), user) == "k"
            try:
                await apeek(store, user)
            except PolicyDenied as refused:
                return {"seen": [f"{user} {refused.details['rule']}"]}
        return {}

    assert (await branches(node, notes.store).ainvoke({}))["seen"] == [f"{BAD} user_partition"]
    assert notes.kept() == theirs(EVERYBODY, "k")


# -- a run for each caller


def run_of(state: State, runtime: Runtime[Any]) -> State:
    write(runtime.store, "k", state["by"])
    peek(runtime.store, state["by"])
    write(runtime.store, "then", state["by"])
    return {}


async def arun_of(state: State, runtime: Runtime[Any]) -> State:
    await awrite(runtime.store, "k", state["by"])
    await apeek(runtime.store, state["by"])
    await awrite(runtime.store, "then", state["by"])
    return {}


def check_runs(notes: Notes, outcomes: list[Any]) -> None:
    """Every run ended well but the bad one, which wrote what it did before it was refused."""
    assert {user: type(outcome) for user, outcome in zip(USERS, outcomes, strict=True) if isinstance(outcome, Exception)} == {
        BAD: PolicyDenied
    }
    assert notes.kept() == theirs(EVERYBODY, "k then") | theirs(BAD, "k")


@pytest.mark.parametrize("node", [arun_of, run_of], ids=["async node", "sync node"])
async def test_runs_with_a_caller_each(notes: Notes, node: Any) -> None:
    graph = one(node, store=notes.store)
    tasks = []
    for user in USERS:
        with notes.acting(user):
            tasks.append(asyncio.create_task(graph.ainvoke({"by": user})))
    check_runs(notes, await asyncio.gather(*tasks, return_exceptions=True))


@pytest.mark.parametrize("agent", ["default", "helper"])
async def test_runs_over_bound_views(notes: Notes, agent: str) -> None:
    graph, store = one(arun_of, store=notes.store), notes.navin.agent(agent).store
    views = {user: graph.copy(update={"store": store.bound(notes.caller(user))}) for user in USERS}
    runs = (view.ainvoke({"by": user}) for user, view in views.items())
    check_runs(notes, await asyncio.gather(*runs, return_exceptions=True))


def test_sync_runs_with_a_caller_each(notes: Notes) -> None:
    graph = one(run_of, store=notes.store)
    with ThreadPoolExecutor(MANY) as pool:
        runs = []
        for user in USERS:
            with notes.acting(user):
                runs.append(pool.submit(copy_context().run, graph.invoke, {"by": user}))
    check_runs(notes, [run.exception() or run.result() for run in runs])


# -- operations of one tick


async def test_three_runs_of_one_tick_are_three_writes_and_three_answers(notes: Notes) -> None:
    together = asyncio.Barrier(3)

    async def node(state: State, runtime: Runtime[Any]) -> State:
        store = runtime.store
        assert store is not None
        await together.wait()
        await store.aput(NOTES, "k", {"by": state["by"]})
        await together.wait()
        item = await store.aget(NOTES, "k")
        assert item is not None
        return {"seen": [item.value["by"]]}

    graph, runs = one(node, store=notes.store), []
    for user in ("alice", "bob", "carol"):
        with notes.acting(user):
            runs.append(asyncio.create_task(graph.ainvoke({"by": user})))
    assert [state["seen"] for state in await asyncio.gather(*runs)] == [["alice"], ["bob"], ["carol"]]
    assert notes.kept() == theirs("alice bob carol", "k")


FEW = USERS[:30]
KEYS = [f"k{n}" for n in range(10)]


def tasks_of(notes: Notes, way: str, verb: str, *arguments: Any) -> list[Any]:
    """300 operations that begin in one tick: every caller's first, then every caller's second."""
    tasks = []
    for key in KEYS:
        for user in FEW:
            values = ({"by": user},) if verb == "aput" else ()
            if way == "bound":
                tasks.append(asyncio.create_task(getattr(notes.bound(user), verb)(NOTES, key, *values)))
                continue
            with notes.acting(user):
                tasks.append(asyncio.create_task(getattr(notes.store, verb)(NOTES, key, *values)))
    return tasks


ways = pytest.mark.parametrize("way", ["bound", "acting"])


@ways
async def test_operations_of_one_tick(notes: Notes, way: str) -> None:
    await asyncio.gather(*tasks_of(notes, way, "aput"))
    found = await asyncio.gather(*tasks_of(notes, way, "aget"))
    assert [(item.key, item.value["by"]) for item in found] == [(key, user) for key in KEYS for user in FEW]
    assert notes.kept() == theirs(" ".join(FEW), " ".join(KEYS))


@ways
async def test_bad_operations_of_one_tick_fail_alone(notes: Notes, way: str) -> None:
    def asks(*arguments: Any) -> Any:
        if way == "bound":
            return asyncio.create_task(notes.bound(BAD).aput(*arguments))
        with notes.acting(BAD):
            return asyncio.create_task(notes.store.aput(*arguments))

    # Between the others' and the same caller's own good ones: what is refused, and what can't be right.
    good = tasks_of(notes, way, "aput")
    bad = [asks(("user", "u1"), "k0", {}), asks((), "k0", {}), asks(NOTES, "k0", {"n": float("nan")})]
    late = asks(NOTES, "late", {"by": BAD})
    outcomes = await asyncio.gather(*bad, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PolicyDenied, InvalidNamespace, InvalidRequest]
    await asyncio.gather(*good, late)
    expected = theirs(" ".join(FEW), " ".join(KEYS))
    expected[BAD]["late"] = BAD
    assert notes.kept() == expected


async def test_a_coroutine_is_of_whoever_awaits_it(notes: Notes) -> None:
    with notes.acting("alice"):
        made = [notes.store.aput(NOTES, key, {"by": "bob"}) for key in ("a", "b")]
    with notes.acting("bob"):
        await made[0]
    with pytest.raises(CallerUnknown):
        await made[1]
    assert notes.kept() == theirs("bob", "a")


# -- where and when the store was made


@pytest.mark.parametrize("nodes", [ASYNC_NODES, SYNC_NODES], ids=["async nodes", "sync nodes"])
async def test_a_store_first_used_by_another(notes: Notes, nodes: dict[str, Any]) -> None:
    # Whatever the store starts at its first use, it starts here.
    with notes.acting("zoe"):
        await asyncio.create_task(awrite(notes.store, "first", "zoe"))
    graph = fan(nodes, store=notes.store)
    await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), WAYS, before="first")


async def test_a_store_made_inside_a_users_node(notes: Notes, navin_dsn: str) -> None:
    made: list[Navin] = []
    async with AsyncExitStack() as stack:

        async def node(state: State) -> State:
            if not made:
                made.append(await stack.enter_async_context(Navin.open(navin_dsn, tenant=notes.tenant, require_caller=True)))
            await awrite(made[0].store, "k", state["by"])
            return {}

        graph = one(node)
        with notes.acting("zoe"):
            await graph.ainvoke({"by": "zoe"})
        await aeach_their_own(notes, lambda user: graph.ainvoke({"by": user}), "k", before="k")
