"""What the saver's tests share: databases, connections that are counted, and one set of verbs for both colours."""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple, empty_checkpoint
from psycopg import sql
from psycopg.conninfo import make_conninfo

from langgraph_navin.saver import NavinSaver

COLOURS = ["sync", "async"]


@contextmanager
def fresh_database(server_dsn: str) -> Iterator[str]:
    """The DSN of an empty database that is dropped at the end."""
    name = f"saver_{uuid.uuid4().hex}"
    with psycopg.connect(server_dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(server_dsn, dbname=name)
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Dialled:
    """Connections that are opened for each operation; `out` says how many are lent now, `dropped` how often idle ones ended."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.out = 0
        self.dropped = 0
        self._counting = threading.Lock()

    def _count(self, change: int) -> None:
        with self._counting:
            self.out += change

    @contextmanager
    def connection(self, *, fresh: bool = False) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            self._count(1)
            try:
                yield connection
            finally:
                self._count(-1)

    @asynccontextmanager
    async def aconnection(self, *, fresh: bool = False) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            self._count(1)
            try:
                yield connection
            finally:
                self._count(-1)

    def drop_idle(self) -> None:
        self.dropped += 1


class Do:
    """A saver's or a graph's verbs in one colour; the sync ones run on the test's own event loop's thread."""

    def __init__(self, saver: NavinSaver, colour: str) -> None:
        self.saver = saver
        self.colour = colour

    async def __call__(self, verb: str, *args: Any, on: Any = None, **kwargs: Any) -> Any:
        subject = self.saver if on is None else on
        if self.colour == "sync":
            return getattr(subject, verb)(*args, **kwargs)
        return await getattr(subject, f"a{verb}")(*args, **kwargs)

    async def list(self, *args: Any, **kwargs: Any) -> list[CheckpointTuple]:
        if self.colour == "sync":
            return [*self.saver.list(*args, **kwargs)]
        return [found async for found in self.saver.alist(*args, **kwargs)]

    async def first(self, *args: Any, **kwargs: Any) -> tuple[CheckpointTuple, object]:
        """The first of a listing, and the listing, which nobody has finished or closed."""
        if self.colour == "sync":
            listing = self.saver.list(*args, **kwargs)
            return next(listing), listing
        alisting = self.saver.alist(*args, **kwargs)
        return await anext(alisting), alisting


def thread(**more: str) -> RunnableConfig:
    """The config of a thread that no other test uses."""
    return {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": "", **more}}


def put_arguments(saver: BaseCheckpointSaver[Any], **values: Any) -> tuple[Checkpoint, CheckpointMetadata, dict[str, Any]]:
    """What `put` takes after the config, for a checkpoint that holds `values`."""
    held, versions = checkpoint(saver, **values)
    return held, {"source": "input", "step": -1, "parents": {}}, versions


def checkpoint(saver: BaseCheckpointSaver[Any], **values: Any) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint that holds `values`, and the versions to pass with it."""
    versions: dict[str, Any] = {name: saver.get_next_version(None, None) for name in values}
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}, versions
