"""The saver's verbs in both colours, its graphs, its setup, and what it says when PostgreSQL fails."""

from __future__ import annotations

import asyncio
import copy
import operator
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_navin.saver import NavinSaver
from saver_subjects import COLOURS, Dialled, Do, fresh_database, put_arguments, thread


@pytest.fixture(scope="module")
def dsn(server_dsn: str) -> Iterator[str]:
    with fresh_database(server_dsn) as fresh:
        NavinSaver(Dialled(fresh)).setup()
        yield fresh


@pytest.fixture
def connections(dsn: str) -> Dialled:
    return Dialled(dsn)


@pytest.fixture
def saver(connections: Dialled) -> NavinSaver:
    return NavinSaver(connections)


@pytest.fixture(params=COLOURS)
def do(request: pytest.FixtureRequest, saver: NavinSaver) -> Do:
    return Do(saver, request.param)


# --- the verbs -------------------------------------------------------------------------------------


async def test_a_thread_is_written_read_listed_and_deleted(do: Do) -> None:
    config = thread()
    first = await do("put", config, *put_arguments(do.saver, text=["draft"]))
    second = await do("put", first, *put_arguments(do.saver, text=["final"]))
    await do("put_writes", second, [("channel", ["pending"])], "task-1", "path")
    newest = await do("get_tuple", config)
    assert newest.checkpoint["channel_values"] == {"text": ["final"]}
    assert newest.pending_writes == [("task-1", "channel", ["pending"])]
    assert newest.parent_config == first
    assert (await do("get_tuple", first)).checkpoint["channel_values"] == {"text": ["draft"]}
    assert [found.config for found in await do.list(config)] == [second, first]
    assert [found.config for found in await do.list(config, limit=1)] == [second]
    assert [found.config for found in await do.list(config, before=second)] == [first]
    await do("delete_thread", config["configurable"]["thread_id"])
    assert await do("get_tuple", config) is None


async def _two(do: Do, config: RunnableConfig) -> RunnableConfig:
    first = await do("put", config, *put_arguments(do.saver, text=["a"]))
    second: RunnableConfig = await do("put", first, *put_arguments(do.saver, text=["b"]))
    return second


@pytest.mark.parametrize(("strategy", "left"), [("keep_latest", 1), ("delete", 0)])
async def test_prune_keeps_what_its_strategy_says(do: Do, strategy: str, left: int) -> None:
    config = thread()
    await _two(do, config)
    await do("prune", [config["configurable"]["thread_id"]], strategy=strategy)
    assert len(await do.list(config)) == left


async def test_a_listing_left_half_way_holds_no_connection(do: Do, connections: Dialled) -> None:
    config = thread()
    second = await _two(do, config)
    found, _unfinished = await do.first(config)
    assert found.config == second
    assert connections.out == 0


def test_versions_grow_in_langgraphs_format(saver: NavinSaver) -> None:
    first = saver.get_next_version(None, None)
    second = saver.get_next_version(first, None)
    assert first < second
    assert saver.get_next_version(second, None) > second


def test_a_copy_with_more_types_leaves_the_original_alone(saver: NavinSaver) -> None:
    wider = saver.with_allowlist({("some_app", "Ticket")})
    assert isinstance(wider, NavinSaver)
    assert wider.serde is not saver.serde
    assert wider.with_allowlist({("some_app", "Ticket")}) is wider
    assert copy.copy(saver).get_tuple(thread()) is None


# --- graphs ----------------------------------------------------------------------------------------


class Review(TypedDict):
    log: Annotated[list[str], operator.add]


def reviewed(saver: NavinSaver) -> Any:
    """Draft, then ask a person, then publish what the person says."""
    builder = StateGraph(Review)
    builder.add_node("draft", lambda state: {"log": ["draft"]})
    builder.add_node("ask", lambda state: {"log": [interrupt("publish?")]})
    builder.add_node("publish", lambda state: {"log": ["published"]})
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "ask")
    builder.add_edge("ask", "publish")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize(("before", "after"), [("sync", "async"), ("async", "sync"), ("sync", "sync"), ("async", "async")])
async def test_an_interrupted_graph_is_resumed_by_either_colour(saver: NavinSaver, before: str, after: str) -> None:
    graph, config = reviewed(saver), thread()
    paused = await Do(saver, before)("invoke", {"log": []}, config, on=graph)
    assert paused["__interrupt__"][0].value == "publish?"
    done = await Do(saver, after)("invoke", Command(resume="yes"), config, on=graph)
    assert done["log"] == ["draft", "yes", "published"]
    assert [state.values["log"][-1:] for state in graph.get_state_history(config)][:2] == [["published"], ["yes"]]


def test_one_saver_serves_event_loops_one_after_another(saver: NavinSaver) -> None:
    graph, config = reviewed(saver), thread()
    asyncio.run(graph.ainvoke({"log": []}, config))
    done = asyncio.run(graph.ainvoke(Command(resume="no"), config))
    assert done["log"] == ["draft", "no", "published"]


def test_threads_share_one_saver(saver: NavinSaver, connections: Dialled) -> None:
    graph = reviewed(saver)

    def session(number: int) -> list[str]:
        config = thread()
        graph.invoke({"log": []}, config)
        log: list[str] = graph.invoke(Command(resume=str(number)), config)["log"]
        return log

    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(session, range(8)))
    assert logs == [["draft", str(number), "published"] for number in range(8)]
    assert connections.out == 0


def test_two_threads_are_inside_at_once(dsn: str) -> None:
    both = threading.Barrier(2)

    class Meeting(Dialled):
        @contextmanager
        def connection(self, *, fresh: bool = False) -> Iterator[psycopg.Connection[Any]]:
            with super().connection() as connection:
                both.wait(timeout=30)  # breaks if one of them waits for the other
                yield connection

    saver = NavinSaver(Meeting(dsn))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(saver.get_tuple, [thread(), thread()])) == [None, None]


async def test_two_tasks_are_inside_at_once(dsn: str) -> None:
    inside, both = [0], asyncio.Event()

    class Meeting(Dialled):
        @asynccontextmanager
        async def aconnection(self, *, fresh: bool = False) -> Any:
            async with super().aconnection() as connection:
                inside[0] += 1
                if inside[0] == 2:
                    both.set()
                await asyncio.wait_for(both.wait(), 30)
                yield connection

    saver = NavinSaver(Meeting(dsn))
    assert [*await asyncio.gather(saver.aget_tuple(thread()), saver.aget_tuple(thread()))] == [None, None]


class Notes(TypedDict):
    notes: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(note for batch in new for note in batch)], snapshot_frequency=2)]


async def test_delta_channels_are_rebuilt_from_their_writes(do: Do) -> None:
    builder = StateGraph(Notes)
    builder.add_node("note", lambda state: {"notes": ["noted"]})
    builder.add_edge(START, "note")
    graph, config = builder.compile(checkpointer=do.saver), thread()
    for number in range(3):
        await do("invoke", {"notes": [f"{number}"]}, config, on=graph)
    expected = ["0", "noted", "1", "noted", "2", "noted"]
    assert (await do("get_state", config, on=graph)).values["notes"] == expected
    history = await do("get_delta_channel_history", config=config, channels=["notes"])
    assert set(history) == {"notes"}
    with pytest.raises(NotImplementedError, match="DeltaChannel"):
        await do("prune", [config["configurable"]["thread_id"]])
