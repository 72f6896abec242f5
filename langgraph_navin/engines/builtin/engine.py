"""The builtin engine's plan: which statements a batch takes, in which order, and what their rows mean.

Texts are embedded first, then the batch's reads run, then its writes as one document: reads see the state before the
batch, and the writes stand whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import orjson

from ...abc import AsyncSession, Session, StalePolicy
from ...audit import AuditEvent
from ...capabilities import MEMORY
from ...effects import Steps, embed
from ...errors import Conflict, LegalHold, NotFound, PolicyDenied
from ...items import MemoryItem, Receipt
from ...operations import (
    Access,
    Answer,
    Call,
    Forget,
    ForgetItem,
    Get,
    GetCapabilities,
    GetHealth,
    GetItem,
    ListItems,
    ListNamespaces,
    Remember,
    Search,
    Update,
)
from ...scopes import UNIT
from ...values import decode
from .connections import Connections
from .documents import Place, Put, batch, listed, place
from .lexemes import VERSION
from .reads import Kept, Reads
from .session import AsyncWire, Model, Wire
from .statements import query
from .upkeep import compact, sweep

#: Where a forgotten memory's content is gone from, in the transaction that forgets it.
#: The text index isn't among them: searches leave the item out at once, its lexemes go with the next compaction.
_ERASED_FROM = ("items", "history", "vectors")


@dataclass(frozen=True, slots=True)
class Index:
    """What is searchable: paths of a value, and the model if there is one."""

    fields: tuple[str, ...] = ("$",)
    model: Model | None = None
    distance: str = "cosine"


class BuiltinEngine:
    """Items, text index, vectors and journal in one PostgreSQL database."""

    name = "builtin"
    #: `recall` and `purge` are announced when they are there.
    capabilities: frozenset[str] = frozenset(MEMORY) - {"recall", "purge"}

    def __init__(self, connections: Connections, index: Index | None = None) -> None:
        self.connections = connections
        self.index = index or Index()
        self.use_vectors("public")

    def use_vectors(self, schema: str) -> None:
        """Look for pgvector in this schema."""
        self._reads = Reads(self.index.distance, schema)

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

    def upkeep(self, *, thorough: bool = False) -> Steps[dict[str, int]]:
        """Sweep what has expired and compact the text index; `thorough` also where little has died."""
        swept = yield from sweep()
        compacted = yield from compact(dead=1) if thorough else compact()
        return {"swept": swept, "compacted": compacted}

    def sweep(self, limit: int | None = None) -> Steps[int]:
        """Delete what has expired; the number of items."""
        return (yield from sweep(limit))

    def steps(self, access: Access, calls: Sequence[Call]) -> Steps[list[Answer]]:
        writes = _Writes(self.index)
        for at, call in enumerate(calls):
            writes.take(at, call)
        vectors = yield from self._documents(writes)
        questions = yield from self._questions(calls)
        answers: list[Answer] = [None] * len(calls)
        yield from self._read(access, calls, questions, answers)
        yield from self._rewrites(access, calls, writes)
        yield from self._write(access, writes, vectors, answers)
        return answers

    def _documents(self, writes: _Writes) -> Steps[dict[str, list[float]]]:
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
                    answers[at] = yield from self._reads.search(access, call, op, questions.get(op.query))
                case ListNamespaces() as op:
                    answers[at] = yield from self._reads.list_namespaces(access, call, op)
                case GetHealth():
                    yield from query("ping", {})
                    answers[at] = {"engine": self.name, "status": "ok"}
                case GetCapabilities():
                    answers[at] = {"engine": self.name, "capabilities": sorted(self.capabilities)}

    def _rewrites(self, access: Access, calls: Sequence[Call], writes: _Writes) -> Steps[None]:
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
                writes.put(at, kept.item.partition, _rewritten(kept, operation), by_id=True)

    def _write(self, access: Access, writes: _Writes, known: dict[str, list[float]], answers: list[Answer]) -> Steps[None]:
        if not writes.puts and not writes.gone:
            return
        puts = list(writes.puts.values())
        missing = tuple(dict.fromkeys(text for put in puts for text in put.texts if text not in known))
        if missing:
            known = known | dict(zip(missing, (yield from embed(missing)), strict=True))
        vectors = [known[text] for put in puts for text in put.texts]
        rows = yield from query("write", self._written(access, writes, puts, vectors), writes=True)
        status, outcome, forgot = rows[0]
        _raise_for(status)
        writes.answer(answers, outcome, forgot)

    def _written(self, access: Access, writes: _Writes, puts: list[Put], vectors: list[list[float]]) -> dict[str, Any]:
        touched = {put.place[0] for put in puts} | {p for p, _, _ in writes.gone}
        return {
            "tenant": access.tenant,
            "parts": listed(sorted(touched)),
            "epoch": access.epoch,
            "who": who(access),
            "ceiling": access.ceiling,
            "kinds": list(access.kinds) if access.kinds is not None else None,
            "lexer": VERSION,
            "want": writes.wanted,
            **batch(puts, writes.gone, vectors),
        }


def who(access: Access) -> str:
    """Who acts, as the journal's settings take it."""
    return UNIT.join((access.actor, access.agent, str(access.policy_version), access.trace or ""))


def _raise_for(status: str) -> None:
    match status:
        case "ok":
            return
        case "stale":
            raise StalePolicy
        case "legal_hold":
            raise LegalHold("a memory of this batch is under legal hold; nothing was written", rule=status)
        case "expected_version":
            raise Conflict("a memory of this batch isn't at the expected version any more; nothing was written", rule=status)
        case rule:
            raise PolicyDenied(f"the policy's {rule} refuses to replace what stands there; nothing was written", rule=rule)


def _rewritten(kept: Kept, update: Update) -> Remember:
    found = kept.item
    # Against the version that was read: whoever changed it meanwhile isn't overwritten unseen.
    expected = found.version if update.expected_version is None else update.expected_version
    return Remember(
        namespace=found.namespace,
        key=found.key,
        value=update.value,
        item_id=found.id,
        document=update.document,
        kind=found.kind,
        classification=found.classification,
        importance=found.importance,
        source=found.source,
        # What was written to be found by nothing stays so.
        index=None if kept.indexed else False,
        ttl=kept.ttl,
        expected_version=expected,
    )


class _Writes:
    """The writes of a batch by place: the last one to a place wins."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.puts: dict[Place, Put] = {}
        #: By place, the id that must stand there, or None for whatever does.
        self.gone: dict[Place, str | None] = {}
        self._asked: list[tuple[int, Place, str | None]] = []

    def take(self, at: int, call: Call) -> None:
        match call.operation:
            case Remember() as write:
                self.put(at, call.partition.text, write)
            case Forget() as write:
                self.forget(at, place(call.partition.text, write), None)

    def put(self, at: int, partition: str, write: Remember, *, by_id: bool = False) -> None:
        put = Put.of(partition, write, self._index.fields, embeds=self._index.model is not None, by_id=by_id)
        self.gone.pop(put.place, None)
        # Taken out first: the last write to a place also comes last.
        self.puts.pop(put.place, None)
        self.puts[put.place] = put
        self._asked.append((at, put.place, None))

    @property
    def wanted(self) -> bool:
        """Whether anybody asked what became of a write."""
        return bool(self.gone) or any(put.write.wanted for put in self.puts.values())

    def forget(self, at: int, where: Place, item_id: str | None) -> None:
        self.puts.pop(where, None)
        self.gone[where] = item_id
        self._asked.append((at, where, item_id))

    def answer(self, answers: list[Answer], outcome: list[list[Any]] | None, forgot: list[list[str]] | None) -> None:
        """Put what `write` reports to its operations: the stored item, or a receipt."""
        stored = {row[0]: row[1:] for row in outcome or []}
        found = {tuple(row) for row in forgot or []}
        for at, where, item_id in self._asked:
            if where in self.puts:
                answers[at] = _stored(self.puts[where], stored) if self.puts[where].write.wanted else None
            else:
                answers[at] = Receipt(True, item_id, _ERASED_FROM) if where in found else Receipt(False, item_id)


def _stored(put: Put, stored: dict[str, list[Any]]) -> MemoryItem:
    write = put.write
    item_id, version, created, updated, expires = stored[write.item_id]
    return MemoryItem(
        id=item_id,
        partition=put.place[0],
        namespace=write.namespace,
        key=write.key,
        value=decode(write.value),
        kind=write.kind,
        classification=write.classification,
        importance=write.importance,
        source=cast("dict[str, Any] | None", write.source),
        version=version,
        created_at=datetime.fromisoformat(created),
        updated_at=datetime.fromisoformat(updated),
        expires_at=datetime.fromisoformat(expires) if expires else None,
    )
