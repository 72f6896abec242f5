"""What performs the engine's effects: statements on a connection, texts on a model. The two colours, and nothing else twice.

A read that meets a dead connection is done again on a fresh one. A write is done again only where the connection was
seen dead before anything was sent; otherwise the error says that its fate isn't known.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import psycopg
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from ...effects import Embed
from ...errors import InvalidRequest
from .connections import Async, Connections, Sync
from .faults import mapped
from .statements import Query, Row, named

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

Vectors: TypeAlias = list[list[float]]


@dataclass(frozen=True, slots=True, repr=False)
class Reals:
    """Numbers for a `real[]` parameter, sent in binary: a hundred vectors as text would take longer than their insert."""

    values: np.ndarray[Any, np.dtype[np.float32]]


class _RealsDumper(Dumper):
    format = Format.BINARY
    oid = psycopg.adapters.types["float4"].array_oid

    def dump(self, obj: Reals) -> Buffer:
        flat = obj.values.ravel()
        header = np.array([1, 0, psycopg.adapters.types["float4"].oid, flat.size, 1], ">i4")
        body = np.empty(flat.size, [("length", ">i4"), ("value", ">f4")])
        body["length"], body["value"] = 4, flat
        return header.tobytes() + body.tobytes()


def configure(connection: Sync | Async) -> None:
    """Teach a new connection our parameter types."""
    connection.adapters.register_dumper(Reals, _RealsDumper)


@dataclass(frozen=True, slots=True)
class Model:
    """The embedding model and the number of dimensions that it was declared with."""

    embeddings: Embeddings
    dims: int

    def checked(self, texts: Sequence[str], vectors: Vectors) -> Vectors:
        if len(vectors) != len(texts):
            raise InvalidRequest(f"index.embed gave {len(vectors)} vectors for {len(texts)} texts", field="index.embed")
        if any(len(v) != self.dims for v in vectors):
            given = next(len(v) for v in vectors if len(v) != self.dims)
            raise InvalidRequest(f"index.dims is {self.dims}, and index.embed gave {given} dimensions; make them agree", field="index.dims")
        return vectors


def dead(connection: Sync | Async) -> bool:
    """Whether the server has spoken, or hung up, while nobody asked: an idle connection is silent."""
    # Not `select`, which knows no descriptor above 1023.
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN | select.POLLPRI)
    except (OSError, ValueError, psycopg.Error):
        return True
    return bool(poll.poll(0))


def lost(connection: Sync | Async, error: psycopg.Error) -> bool:
    """Whether the connection ended before the server answered. It is finished then, so that nobody takes it for idle."""
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        # psycopg may notice a reset while it waits, before libpq has read anything: the connection then looks open.
        connection.pgconn.finish()
    return connection.closed


class Wire:
    """Effects of one plan, blocking."""

    def __init__(self, connections: Connections, model: Model | None) -> None:
        self._connections, self._model = connections, model

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Embed):
            return self._embed(effect)
        return self._query(effect)

    def _embed(self, effect: Embed) -> Vectors:
        assert self._model is not None
        model, texts = self._model.embeddings, list(effect.texts)
        return self._model.checked(texts, [model.embed_query(t) for t in texts] if effect.query else model.embed_documents(texts))

    def _query(self, query: Query) -> list[Row]:
        for fresh in (False, True):
            with self._connections.connection(fresh=fresh) as connection:
                if not fresh and query.writes and dead(connection):
                    connection.close()
                    self._connections.drop_idle()
                    continue
                try:
                    return _run(connection, query)
                except psycopg.Error as error:
                    failed = error
                unanswered = lost(connection, failed)
                if fresh or query.writes or not unanswered:
                    # Outside the handler: PostgreSQL's own text, with values in it, would stay in the error's context.
                    raise mapped(failed, sent=query.writes and unanswered)
            self._connections.drop_idle()
        raise AssertionError("a fresh connection answers or raises")


def _run(connection: Sync, query: Query) -> list[Row]:
    if query.enter is None:
        cursor = connection.execute(query.statement, query.params or None)
        return cursor.fetchall() if _answers(cursor) else []
    with connection.pipeline():
        connection.execute(named()[query.entry], query.enter)
        cursor = connection.execute(query.statement, query.params, prepare=_prepare(query))
    return cursor.fetchall()


def _answers(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Whether a statement has rows. `cursor.description` would say it too, at the price of a small query."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _prepare(query: Query) -> bool | None:
    # A prepared statement is soon planned for any values, and the index of one partition can't be used by such a plan.
    return False if query.once else None


class AsyncWire:
    """Effects of one plan, awaiting."""

    def __init__(self, connections: Connections, model: Model | None) -> None:
        self._connections, self._model = connections, model

    async def perform(self, effect: Any) -> Any:
        if isinstance(effect, Embed):
            return await self._embed(effect)
        return await self._query(effect)

    async def _embed(self, effect: Embed) -> Vectors:
        assert self._model is not None
        model, texts = self._model.embeddings, list(effect.texts)
        if effect.query:
            return self._model.checked(texts, [await model.aembed_query(t) for t in texts])
        return self._model.checked(texts, await model.aembed_documents(texts))

    async def _query(self, query: Query) -> list[Row]:
        for fresh in (False, True):
            async with self._connections.aconnection(fresh=fresh) as connection:
                if not fresh and query.writes and dead(connection):
                    await connection.close()
                    self._connections.drop_idle()
                    continue
                try:
                    return await _arun(connection, query)
                except psycopg.Error as error:
                    failed = error
                unanswered = lost(connection, failed)
                if fresh or query.writes or not unanswered:
                    raise mapped(failed, sent=query.writes and unanswered)
            self._connections.drop_idle()
        raise AssertionError("a fresh connection answers or raises")


async def _arun(connection: Async, query: Query) -> list[Row]:
    if query.enter is None:
        cursor = await connection.execute(query.statement, query.params or None)
        return await cursor.fetchall() if _answers(cursor) else []
    async with connection.pipeline():
        await connection.execute(named()[query.entry], query.enter)
        cursor = await connection.execute(query.statement, query.params, prepare=_prepare(query))
    return await cursor.fetchall()
