"""The builtin engine's plan: which statements a batch takes, in which order, and what their rows mean.

Texts are embedded first, then the batch's reads run, then its writes as one document: reads see the state before the
batch, and the writes stand whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import orjson

from ...abc import AsyncSession, Session
from ...audit import AuditEvent
from ...capabilities import MEMORY
from ...effects import Steps, embed, given_up
from ...errors import NotFound
from ...operations import (
    Access,
    Answer,
    Call,
    ForgetItem,
    Get,
    GetCapabilities,
    GetHealth,
    GetItem,
    ListItems,
    ListNamespaces,
    Search,
    Update,
)
from .connections import Connections
from .documents import place
from .reads import Reads
from .searching import Searches
from .session import AsyncWire, Wire
from .settling import settle
from .statements import query
from .upkeep import compact, sweep
from .writing import Index, Writes, rewritten, who, write


class BuiltinEngine:
    """Items, text index, vectors and journal in one PostgreSQL database."""

    name = "builtin"
    #: `recall` and `purge` are announced when they are there.
    capabilities: frozenset[str] = frozenset(MEMORY) - {"recall", "purge"}

    def __init__(self, connections: Connections, index: Index | None = None) -> None:
        self.connections = connections
        self._reads = Reads()
        self.index = index or Index()
        self.use_vectors("public")

    def use_vectors(self, schema: str) -> None:
        """Look for pgvector in this schema."""
        self._searches = Searches(self.index.distance, schema)

    # --- sessions ---------------------------------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield Wire(self.connections, self.index.model)

    @asynccontextmanager
    async def asession(self) -> AsyncIterator[AsyncSession]:
        yield AsyncWire(self.connections, self.index.model)

    # --- plans ------------------------------------------------------------------------------------------------

    def epoch(self, tenant: str) -> Steps[int]:
        rows = yield from query("epoch_of", {"tenant": tenant})
        return int(rows[0][0])

    def refuse(self, access: Access, events: Sequence[AuditEvent]) -> Steps[None]:
        written = orjson.dumps([{"op": event.operation, "rule": event.rule} for event in events]).decode()
        yield from query("refuse", {"tenant": access.tenant, "who": who(access), "events": written}, writes=True)

    def upkeep(self, *, thorough: bool = False, settle_at: int | None = None) -> Steps[dict[str, int]]:
        """Sweep what has expired, compact the text index, settle vectors; `thorough` also where little has died, and with new indexes.

        Args:
            settle_at: vectors of one partition from which on it gets an index; None for the usual number.
        """
        swept = yield from sweep()
        compacted = yield from compact(dead=1) if thorough else compact()
        settled = yield from settle(settle_at, thorough=thorough)
        return {"swept": swept, "compacted": compacted, **settled}

    def sweep(self, limit: int | None = None) -> Steps[int]:
        """Delete what has expired; the number of items."""
        return (yield from sweep(limit))

    def steps(self, access: Access, calls: Sequence[Call]) -> Steps[list[Answer]]:
        writes = Writes(self.index)
        for at, call in enumerate(calls):
            writes.take(at, call)
        vectors = yield from self._documents(writes)
        questions = yield from self._questions(calls)
        for call in calls if (left := (yield from given_up())) else ():
            if id(call.operation) in left:
                writes.leave(call)
        answers: list[Answer] = [None] * len(calls)
        yield from self._read(access, calls, questions, answers)
        yield from self._rewrites(access, calls, writes)
        yield from write(access, writes, vectors, answers)
        return answers

    def _documents(self, writes: Writes) -> Steps[dict[str, list[float]]]:
        texts = tuple(dict.fromkeys(text for put in writes.puts.values() for text in put.texts))
        return dict(zip(texts, (yield from embed(texts)), strict=True)) if texts else {}

    def _questions(self, calls: Sequence[Call]) -> Steps[dict[str, list[float]]]:
        if self.index.model is None:
            return {}
        texts = tuple(dict.fromkeys(call.operation.query for call in calls if isinstance(call.operation, Search)))
        return dict(zip(texts, (yield from embed(texts, query=True)), strict=True)) if texts else {}

    def _read(self, access: Access, calls: Sequence[Call], questions: dict[str, list[float]], answers: list[Answer]) -> Steps[None]:
        gets = [(at, call) for at, call in enumerate(calls) if isinstance(call.operation, Get)]
        for (at, _), found in zip(gets, (yield from self._reads.get(access, [call for _, call in gets])), strict=True):
            answers[at] = found
        for at, call in enumerate(calls):
            match call.operation:
                case GetItem(item_id):
                    kept = yield from self._reads.by_id(access, call, item_id)
                    answers[at] = kept.item if kept else None
                case ListItems() as op:
                    answers[at] = yield from self._reads.list_items(access, call, op)
                case Search() as op:
                    answers[at] = yield from self._searches.search(access, call, op, questions.get(op.query))
                case ListNamespaces() as op:
                    answers[at] = yield from self._reads.list_namespaces(access, call, op)
                case GetHealth():
                    yield from query("ping", {})
                    answers[at] = {"engine": self.name, "status": "ok"}
                case GetCapabilities():
                    answers[at] = {"engine": self.name, "capabilities": sorted(self.capabilities)}

    def _rewrites(self, access: Access, calls: Sequence[Call], writes: Writes) -> Steps[None]:
        """Operations by id find the item's place first. The other writes are taken once more, so that the last one wins."""
        by_id = any(isinstance(call.operation, (Update, ForgetItem)) for call in calls)
        for at, call in enumerate(calls if by_id else ()):
            operation = call.operation
            if not isinstance(operation, (Update, ForgetItem)):
                writes.take(at, call)
                continue
            kept = yield from self._reads.by_id(access, call, operation.item_id)
            if kept is None:
                raise NotFound("no such memory, or not visible to this caller")
            if isinstance(operation, ForgetItem):
                writes.forget(at, place(kept.item.partition, kept.item), operation.item_id)
            else:
                writes.put(at, kept.item.partition, rewritten(kept, operation), by_id=True)
