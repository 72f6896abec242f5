"""The reference model: an engine that keeps its memories in a dictionary.

It is what the others are compared with, so it is written to be read: no index, no cache, every answer computed from
all items. It is a whole engine, usable in tests of applications; nothing outlives the process.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ..abc import AsyncSession, Session, StalePolicy
from ..audit import AuditEvent
from ..capabilities import MEMORY
from ..effects import Steps
from ..errors import NotFound
from ..items import MemoryItem, Receipt
from ..operations import (
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
from ..values import decode
from .dictionary_reads import Reader
from .shelves import Place, Shelf, Stored, check
from .words import Words


@dataclass(frozen=True, slots=True)
class Apply:
    """The engine's one effect: do this, with nobody else at the dictionaries."""

    deed: Callable[[], Any] = field(repr=False)


class DictionaryEngine:
    """Memories in plain dictionaries, one shelf a tenant.

    Args:
        clock: the time, in UTC. Items of different batches are ordered by it, so it should never stand still.
        fields: the paths of a value that are searched by words.
    """

    name = "dictionary"
    capabilities: frozenset[str] = frozenset(MEMORY)

    def __init__(self, clock: Callable[[], datetime] | None = None, fields: tuple[str, ...] = ("$",)) -> None:
        self._clock = clock or _utc
        self._fields = fields
        self._shelves: dict[str, Shelf] = {}
        self._lock = threading.RLock()
        #: Refusals, as they were given to `refuse`: the tenant and the event.
        self.refusals: list[tuple[str, AuditEvent]] = []

    # --- sessions ---------------------------------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield _Alone(self._lock)

    @asynccontextmanager
    async def asession(self) -> AsyncIterator[AsyncSession]:
        yield _AloneAsync(_Alone(self._lock))

    # --- plans ------------------------------------------------------------------------------------------------

    def epoch(self, tenant: str) -> Steps[int]:
        return cast(int, (yield Apply(lambda: self._shelf(tenant).epoch)))

    def refuse(self, access: Access, events: Sequence[AuditEvent]) -> Steps[None]:
        yield Apply(lambda: self.refusals.extend((access.tenant, event) for event in events))

    def steps(self, access: Access, calls: Sequence[Call]) -> Steps[list[Answer]]:
        return cast("list[Answer]", (yield Apply(lambda: self._batch(access, calls))))

    # --- for tests --------------------------------------------------------------------------------------------

    def move_epoch(self, tenant: str, epoch: int) -> None:
        """The tenant's policies changed: decisions of another epoch are stale from now on."""
        with self._lock:
            self._shelf(tenant).epoch = epoch

    def expire(self, tenant: str, item_id: str) -> None:
        """End an item's life now, whatever its time to live."""
        with self._lock:
            shelf = self._shelf(tenant)
            for place, stored in shelf.items.items():
                if stored.item.id == item_id:
                    shelf.items[place] = stored.until(self._clock())

    # --- a batch ----------------------------------------------------------------------------------------------

    def _shelf(self, tenant: str) -> Shelf:
        return self._shelves.setdefault(tenant, Shelf())

    def _batch(self, access: Access, calls: Sequence[Call]) -> list[Answer]:
        shelf, now = self._shelf(access.tenant), self._clock()
        if shelf.epoch != access.epoch:
            raise StalePolicy
        shelf.drop_expired(now)
        reader = Reader(shelf, access, now)
        answers = [self._read(reader, call) for call in calls]
        writes = _Writes(shelf, reader, now, self._fields)
        for call in calls:
            writes.take(call)
        writes.carry_out(access, answers)
        return answers

    def _read(self, reader: Reader, call: Call) -> Answer:
        match call.operation:
            case Get() as op:
                return reader.get(call, op)
            case GetItem(item_id):
                found = reader.by_id(call, item_id)
                return found.item if found else None
            case ListItems() as op:
                return reader.list_items(call, op)
            case Search() as op:
                return reader.search(call, op)
            case ListNamespaces() as op:
                return reader.list_namespaces(call, op)
            case GetHealth():
                return {"engine": self.name, "status": "ok"}
            case GetCapabilities():
                return {"engine": self.name, "capabilities": sorted(self.capabilities)}
        return None


class _Writes:
    """The writes of a batch: of several to one place the last one counts, and all are done or none."""

    def __init__(self, shelf: Shelf, reader: Reader, now: datetime, fields: tuple[str, ...]) -> None:
        self._shelf, self._reader, self._now, self._fields = shelf, reader, now, fields
        self._last: dict[Place, Remember | None] = {}
        #: The place of each write, None for what reads.
        self._asked: list[tuple[Place, Remember | Update | Forget | ForgetItem] | None] = []

    def take(self, call: Call) -> None:
        match call.operation:
            case Remember(namespace=labels, key=key) as write:
                self._note((call.partition.text, labels, key), write, write)
            case Forget(namespace=labels, key=key) as forget:
                self._note((call.partition.text, labels, key), forget, None)
            case Update(item_id=item_id) as update:
                found = self._found(call, item_id)
                self._note(found.place, update, _rewritten(found, update))
            case ForgetItem(item_id) as forget_item:
                self._note(self._found(call, item_id).place, forget_item, None)
            case _:
                self._asked.append(None)

    def _note(self, place: Place, asked: Remember | Update | Forget | ForgetItem, last: Remember | None) -> None:
        self._last[place] = last
        self._asked.append((place, asked))

    def _found(self, call: Call, item_id: str) -> Stored:
        found = self._reader.by_id(call, item_id)
        if found is None:
            raise NotFound("no such memory, or not visible to this caller")
        return found

    def carry_out(self, access: Access, answers: list[Answer]) -> None:
        for place, write in self._last.items():
            check(self._shelf, access, place, write)
        gone = {place for place, write in self._last.items() if write is None and self._shelf.take(access, place)}
        for place, write in self._last.items():
            if write is not None:
                self._shelf.items[place] = self._written(place, write)
        for at, asked in enumerate(self._asked):
            if asked is not None:
                answers[at] = self._answer(gone, *asked)

    def _answer(self, gone: set[Place], place: Place, asked: Remember | Update | Forget | ForgetItem) -> Answer:
        last = self._last[place]
        if last is None:
            return Receipt(place in gone, asked.item_id if isinstance(asked, ForgetItem) else None, ("items",) if place in gone else ())
        return self._shelf.items[place].fresh() if last.wanted else None

    def _written(self, place: Place, write: Remember) -> Stored:
        old, now = self._shelf.items.get(place), self._now
        item = MemoryItem(
            id=old.item.id if old else write.item_id,
            partition=place[0],
            namespace=write.namespace,
            key=write.key,
            value=decode(write.value),
            kind=write.kind,
            classification=write.classification,
            importance=write.importance,
            source=None if write.source is None else dict(write.source),
            version=old.item.version + 1 if old else 1,
            created_at=old.item.created_at if old else now,
            updated_at=max(now, old.item.updated_at) if old else now,
            expires_at=None if write.ttl is None else now + timedelta(seconds=write.ttl),
        )
        paths = {False: (), None: self._fields}.get(cast(Any, write.index), cast(Any, write.index))
        return Stored(item, write.value, write.ttl, Words.of(write.document, paths))


def _rewritten(found: Stored, update: Update) -> Remember:
    item = found.item
    return Remember(
        namespace=item.namespace,
        key=item.key,
        value=update.value,
        item_id=item.id,
        document=update.document,
        kind=item.kind,
        classification=item.classification,
        importance=item.importance,
        source=item.source,
        # What was written to be found by nothing stays so.
        index=None if found.words.length else False,
        ttl=found.ttl,
        expected_version=item.version if update.expected_version is None else update.expected_version,
    )


@dataclass(frozen=True)
class _Alone:
    lock: threading.RLock

    def perform(self, effect: Apply) -> Any:
        with self.lock:
            return effect.deed()


@dataclass(frozen=True)
class _AloneAsync:
    inner: _Alone

    async def perform(self, effect: Apply) -> Any:
        return self.inner.perform(effect)


def _utc() -> datetime:
    return datetime.now(UTC)
