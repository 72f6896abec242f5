"""The dictionary engine's answers to reads, each computed from every item that the caller may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ..filters import Condition, matches
from ..items import MemoryItem, level
from ..operations import Access, Call, Get, ListItems, ListNamespaces, Pattern, Search
from ..scopes import Labels, Reach, joined, scope_of
from .shelves import Place, Shelf, Stored
from .words import scores


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads of one batch: one caller, one moment."""

    shelf: Shelf
    access: Access
    now: datetime

    # --- what can be seen -------------------------------------------------------------------------------------

    def _reached(self, call: Call) -> dict[Place, Stored]:
        """Everything in the partitions of a call, up to the caller's ceiling, whatever its kind."""
        within = {place: s for place, s in self.shelf.items.items() if _reaches(call.reach, place[0])}
        return {place: s for place, s in within.items() if level(s.item.classification) <= self.access.ceiling}

    def _visible(self, call: Call) -> dict[Place, Stored]:
        kinds = self.access.kinds
        return {place: s for place, s in self._reached(call).items() if kinds is None or s.item.kind in kinds}

    def _used(self, found: Iterable[Stored], refresh: bool) -> None:
        for stored in found if refresh else ():
            self.shelf.items[stored.place] = self.shelf.items[stored.place].refreshed(self.now)

    # --- one item ---------------------------------------------------------------------------------------------

    def get(self, call: Call, op: Get) -> MemoryItem | None:
        found = self._visible(call).get((call.partition.text, op.namespace, op.key))
        if found is None:
            return None
        self._used([found], op.refresh)
        return found.fresh()

    def by_id(self, call: Call, item_id: str) -> Stored | None:
        return next((s for s in self._visible(call).values() if s.item.id == item_id), None)

    # --- many -------------------------------------------------------------------------------------------------

    def list_items(self, call: Call, op: ListItems) -> list[MemoryItem]:
        found = sorted(_under(self._visible(call).values(), op.prefix, op.where), key=_by_name)
        found.sort(key=lambda s: s.item.updated_at, reverse=True)
        page = found[op.offset : op.offset + op.limit]
        self._used(page, op.refresh)
        return [stored.fresh() for stored in page]

    def search(self, call: Call, op: Search) -> list[MemoryItem]:
        # How rare a word is depends on all texts up to the ceiling, whatever the prefix, the filter and the kinds.
        said = scores({place: s.words for place, s in self._reached(call).items()}, op.query)
        told = (s for place, s in self._visible(call).items() if place in said)
        found = sorted(_under(told, op.prefix, op.where), key=lambda s: (-said[s.place], *_by_name(s)))
        page = found[op.offset : op.offset + op.limit]
        self._used(page, op.refresh)
        return [stored.fresh(said[stored.place]) for stored in page]

    def list_namespaces(self, call: Call, op: ListNamespaces) -> list[Labels]:
        whole = {stored.item.namespace for stored in self._visible(call).values()}
        fitting = (labels for labels in whole if _fits(labels, op.prefixes, op.suffixes))
        cut = {labels[: op.max_depth] for labels in fitting}
        return sorted(cut, key=lambda labels: joined(labels)[:-1])[op.offset : op.offset + op.limit]


def _reaches(reach: Reach, partition: str) -> bool:
    return partition in {p.text for p in reach.partitions} or scope_of(partition) in reach.scopes


def _under(items: Iterable[Stored], prefix: Labels, where: Condition | None) -> list[Stored]:
    return [s for s in items if s.item.namespace[: len(prefix)] == prefix and matches(where, s.fresh().value)]


def _by_name(stored: Stored) -> tuple[str, str]:
    return joined(stored.item.namespace), stored.item.key


def _fits(labels: Labels, prefixes: tuple[Pattern, ...], suffixes: tuple[Pattern, ...]) -> bool:
    starts = all(_alike(labels[: len(p)], p) for p in prefixes)
    return starts and all(_alike(labels[len(labels) - len(s) :] if len(s) <= len(labels) else (), s) for s in suffixes)


def _alike(labels: Labels, pattern: Pattern) -> bool:
    return len(labels) == len(pattern) and all(p in ("*", label) for label, p in zip(labels, pattern, strict=True))
