"""A stream is served for whoever advances it, at every step, or for the one its store is bound to; never for a third."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from langgraph.config import get_store

from acting import Notes, State, aeach_their_own, awrite, each_their_own, line, theirs, write
from langgraph_navin import CallerUnknown


@pytest.fixture
async def notes(navin_dsn: str) -> AsyncIterator[Notes]:
    notes = Notes(navin_dsn)
    async with notes.navin:
        yield notes


def step(key: str) -> Callable[[State], State]:
    def node(state: State) -> State:
        write(get_store(), key, state["by"])
        return {"seen": [key]}

    return node


def astep(key: str) -> Callable[[State], Awaitable[State]]:
    async def node(state: State) -> State:
        await awrite(get_store(), key, state["by"])
        return {"seen": [key]}

    return node


STEPS = "one two three"
SYNC = {key: step(key) for key in STEPS.split()}
ASYNC = {key: astep(key) for key in STEPS.split()}
RUN: State = {"by": "run"}


async def advance(stream: AsyncIterator[Any]) -> Any:
    return await anext(stream)


async def advanced(notes: Notes, user: str, stream: AsyncIterator[Any]) -> Any:
    """The next part of a stream, asked for in a task of that user's."""
    with notes.acting(user):
        task = asyncio.create_task(advance(stream))
    return await task


# -- consumed where it was started


def test_a_stream(notes: Notes) -> None:
    graph = line(SYNC, store=notes.store)
    each_their_own(notes, lambda user: list(graph.stream({"by": user})), STEPS)


@pytest.mark.parametrize("nodes", [SYNC, ASYNC], ids=["sync nodes", "async nodes"])
async def test_an_async_stream(notes: Notes, nodes: dict[str, Any]) -> None:
    graph = line(nodes, store=notes.store)

    async def work(user: str) -> None:
        assert [list(part) async for part in graph.astream({"by": user}, stream_mode="updates")] == [[key] for key in nodes]

    await aeach_their_own(notes, work, STEPS)


# -- advanced by others than the one who started it


def test_each_step_of_a_stream_is_of_whoever_advances_it(notes: Notes) -> None:
    with notes.acting("alice"):
        stream = line(SYNC, store=notes.store).stream(RUN, stream_mode="updates")
    for user in ("bob", "carol"):
        with notes.acting(user):
            next(stream)
    with pytest.raises(CallerUnknown):
        next(stream)
    assert notes.kept() == {"bob": {"one": "run"}, "carol": {"two": "run"}}


@pytest.mark.parametrize("nodes", [SYNC, ASYNC], ids=["sync nodes", "async nodes"])
async def test_each_step_of_an_async_stream_is_of_whoever_advances_it(notes: Notes, nodes: dict[str, Any]) -> None:
    with notes.acting("alice"):
        stream = line(nodes, store=notes.store).astream(RUN, stream_mode="updates")
    for user in ("bob", "carol"):
        await advanced(notes, user, stream)
    with pytest.raises(CallerUnknown):
        await anext(stream)
    assert notes.kept() == {"bob": {"one": "run"}, "carol": {"two": "run"}}


def test_a_stream_advanced_on_a_bare_thread_is_of_nobody(notes: Notes) -> None:
    with notes.acting("alice"), ThreadPoolExecutor(1) as pool:
        stream = line(SYNC, store=notes.store).stream(RUN, stream_mode="updates")
        pool.submit(copy_context().run, next, stream).result()
        lost = pool.submit(next, stream)
        with pytest.raises(CallerUnknown):
            lost.result()
    assert notes.kept() == {"alice": {"one": "run"}}


# -- a generator that acts


def acting_for_a_stream(notes: Notes, user: str) -> Generator[Any, None, None]:
    """As a web framework's handler would: what is set inside a generator holds only where that generator is advanced."""
    with notes.acting(user):
        yield from line(SYNC, store=notes.store).stream({"by": user}, stream_mode="updates")


def test_an_acting_generator_whose_steps_run_in_contexts_of_their_own_goes_on_as_nobody(notes: Notes) -> None:
    # So do web frameworks that take each part of a sync generator on a thread.
    streams = [acting_for_a_stream(notes, user) for user in ("alice", "bob")]
    for stream in streams:
        copy_context().run(next, stream)
    for stream in streams:
        # It is left in another context than it was entered in, which is nothing the consumer can do about.
        with pytest.raises(CallerUnknown):
            copy_context().run(next, stream)
    assert notes.kept() == theirs("alice bob", "one")


def test_acting_generators_that_end_out_of_order_leave_nobody_acting(notes: Notes) -> None:
    streams = [acting_for_a_stream(notes, user) for user in ("alice", "bob")]

    def consume() -> None:
        for stream in streams:
            next(stream)
        for stream in streams:
            # Each `acting_as` is left here, the first one first: the second must not bring the first one back.
            stream.close()
        write(notes.store, "after", "nobody")

    with pytest.raises(CallerUnknown):
        copy_context().run(consume)
    assert notes.kept() == theirs("alice bob", "one")


@pytest.mark.parametrize("acted", [True, False], ids=["while their users act", "while nobody acts"])
def test_interleaved_streams_over_bound_stores_stay_apart(notes: Notes, acted: bool) -> None:
    graph = line(SYNC, store=notes.store)
    streams = {
        user: graph.copy(update={"store": notes.bound(user)}).stream({"by": user}, stream_mode="updates") for user in ("alice", "bob")
    }
    for _ in SYNC:
        for user, stream in streams.items():
            if acted:
                with notes.acting(user):
                    next(stream)
            else:
                next(stream)
    assert notes.kept() == theirs("alice bob", STEPS)


async def test_interleaved_async_streams_over_bound_stores_stay_apart(notes: Notes) -> None:
    graph = line(ASYNC, store=notes.store)
    streams = {
        user: graph.copy(update={"store": notes.bound(user)}).astream({"by": user}, stream_mode="updates") for user in ("alice", "bob")
    }
    for _ in ASYNC:
        await asyncio.gather(*(advance(stream) for stream in streams.values()))
    assert notes.kept() == theirs("alice bob", STEPS)


async def test_a_bound_stream_advanced_by_another_is_refused(notes: Notes) -> None:
    stream = line(ASYNC, store=notes.bound("alice")).astream({"by": "alice"}, stream_mode="updates")
    await advanced(notes, "alice", stream)
    with pytest.raises(CallerUnknown, match="disagree"):
        await advanced(notes, "bob", stream)
    assert notes.kept() == theirs("alice", "one")
