"""`NavinSaver`: LangGraph's two PostgreSQL savers behind one object without state of its own.

LangGraph's savers belong to one colour, one event loop and one lock. Building one is cheap (tens of
microseconds), so each operation takes a connection, builds the saver of its colour around it, and
gives the connection back: operations run side by side, from any thread and any event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.postgres import BasePostgresSaver, PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from langgraph_navin.errors import NavinError
from langgraph_navin.saver.failures import is_lost, translated
from langgraph_navin.saver.graph_types import ask_for_graph_types
from langgraph_navin.saver.migrations import amigrate, migrate
from langgraph_navin.saver.serde import StrictSerializer

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

T = TypeVar("T")

# Versions are computed, not stored: LangGraph's format without a connection.
_VERSIONS = BasePostgresSaver()


class Connections(Protocol):
    """Where the saver takes its connections from.

    Both context managers lend a connection in autocommit mode to one user at a time and take it back
    when the block ends, however it ends. It may be one that was kept and has died since: the saver then
    calls `drop_idle` and asks once more, for a `fresh` one.
    """

    def connection(self, *, fresh: bool = False) -> AbstractContextManager[psycopg.Connection[Any]]: ...

    def aconnection(self, *, fresh: bool = False) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...

    def drop_idle(self) -> None: ...


class NavinSaver(BaseCheckpointSaver[str]):
    """Checkpoints in LangGraph's own PostgreSQL tables, sync and async, with strict types.

    Build it before compiling the graphs that use it, subgraphs too: `compile()` then tells it the
    dataclasses, pydantic models and enums that their state's annotations name. `serde_types` adds
    classes, or (module, name) pairs, that LangGraph doesn't find there: inside an `Any`, a `Sequence` or
    a `TypeVar` (an agent's `response_format`), and around functions with postponed annotations.

    Every method raises `InvalidRequest` for a type outside this list or a value PostgreSQL can't hold,
    `EngineRetryable` when trying again is safe, and `EngineUnavailable` otherwise.
    """

    def __init__(self, connections: Connections, *, serde_types: Iterable[type | tuple[str, str]] = ()) -> None:
        super().__init__(serde=StrictSerializer(serde_types))
        self._connections = connections
        ask_for_graph_types()

    def setup(self) -> None:
        """Create or upgrade the tables. Any number of processes and threads may do so at once."""
        self._borrow(migrate, changes=True)

    async def asetup(self) -> None:
        """As `setup`."""
        await self._aborrow(amigrate, changes=True)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the newest of its thread; None if there is none."""
        return self._do(lambda saver: saver.get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._ado(lambda saver: saver.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first.

        They are all read when the first is asked for, and the connection is given back before it is
        yielded: a caller may stop half-way, or use the saver between two, without holding one.
        LangGraph's saver fetches all rows too, so only their decoding could be spared; `limit` does.
        """
        yield from self._do(lambda saver: [*saver.list(config, filter=filter, before=before, limit=limit)])

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""

        async def collect(saver: AsyncPostgresSaver) -> Sequence[CheckpointTuple]:
            return [found async for found in saver.alist(config, filter=filter, before=before, limit=limit)]

        for found in await self._ado(collect):
            yield found

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Save a checkpoint and return the config that names it."""
        return self._do(lambda saver: saver.put(config, checkpoint, metadata, new_versions), changes=True)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """As `put`."""
        return await self._ado(lambda saver: saver.aput(config, checkpoint, metadata, new_versions), changes=True)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Save what one task wrote after the checkpoint that `config` names."""
        self._do(lambda saver: saver.put_writes(config, writes, task_id, task_path), changes=True)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """As `put_writes`."""
        await self._ado(lambda saver: saver.aput_writes(config, writes, task_id, task_path), changes=True)

    def delete_thread(self, thread_id: str) -> None:
        """Delete every checkpoint and write of a thread."""
        self._do(lambda saver: saver.delete_thread(thread_id), changes=True)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._ado(lambda saver: saver.adelete_thread(thread_id), changes=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each thread ("keep_latest"), or all ("delete").

        Raises:
            NotImplementedError: If "keep_latest" meets a thread with a `DeltaChannel`; nothing is pruned then.
        """
        self._do(lambda saver: saver.prune(thread_ids, strategy=strategy), changes=True)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._ado(lambda saver: saver.aprune(thread_ids, strategy=strategy), changes=True)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """The stored value and later writes from which each delta channel is rebuilt."""
        return self._do(lambda saver: saver.get_delta_channel_history(config=config, channels=channels))

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await self._ado(lambda saver: saver.aget_delta_channel_history(config=config, channels=channels))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The next version of a channel, in LangGraph's PostgreSQL format."""
        return _VERSIONS.get_next_version(current, channel)

    def _do(self, operation: Callable[[PostgresSaver], T], *, changes: bool = False) -> T:
        return self._borrow(lambda connection: operation(PostgresSaver(connection, serde=self.serde)), changes=changes)

    async def _ado(self, operation: Callable[[AsyncPostgresSaver], Awaitable[T]], *, changes: bool = False) -> T:
        return await self._aborrow(lambda connection: operation(AsyncPostgresSaver(connection, serde=self.serde)), changes=changes)

    def _borrow(self, use: Callable[[psycopg.Connection[Any]], T], *, changes: bool) -> T:
        tried = False
        while True:
            started = False
            try:
                with self._connections.connection(fresh=tried) as connection:
                    started = True
                    return use(connection)
            except psycopg.Error as error:
                failure, again = _judged(error, started=started, tried=tried, changes=changes)
            # Outside the block, so that PostgreSQL's text isn't chained to it.
            if not again:
                raise failure
            tried = True
            self._connections.drop_idle()

    async def _aborrow(self, use: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]], *, changes: bool) -> T:
        tried = False
        while True:
            started = False
            try:
                async with self._connections.aconnection(fresh=tried) as connection:
                    started = True
                    return await use(connection)
            except psycopg.Error as error:
                failure, again = _judged(error, started=started, tried=tried, changes=changes)
            if not again:
                raise failure
            tried = True
            self._connections.drop_idle()


def _judged(error: psycopg.Error, *, started: bool, tried: bool, changes: bool) -> tuple[NavinError, bool]:
    """What to raise, and whether to do it again on a fresh connection instead: every operation here can be repeated."""
    return translated(error, unknown=started and changes), started and not tried and is_lost(error)
