"""The engine's reads: by key, by id, newest first, and the namespaces that hold something.

A read over whole scopes first asks which partitions there are and then goes through them in portions. The policy
epoch is compared in every statement that reads data; a stale one raises `StalePolicy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...effects import Steps
from ...items import MemoryItem
from ...operations import Access, Call, Get, ListItems, ListNamespaces
from ...scopes import Labels, indexed
from ...values import dump
from .asking import Worn, conditions_of, enter, fresh, partitions_of, portions_of, read, scope_of, shared
from .conditions import Conditions, bounds, contained, literal_start, matching
from .documents import Place, place
from .rows import COLUMNS, WIDTH, item
from .statements import Row, composed, query, select

_UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Kept:
    """An item with what a rewrite has to keep."""

    item: MemoryItem
    #: Seconds of life, or None.
    ttl: float | None
    #: Whether it can be found by words or meaning.
    indexed: bool


class Reads:
    """Plans of the reading operations."""

    # --- by key and id ----------------------------------------------------------------------------------------

    def get(self, access: Access, calls: Sequence[Call]) -> Steps[list[MemoryItem | None]]:
        if not calls:
            return []
        if len(calls) == 1:
            return [(yield from self._get_one(access, calls[0]))]
        found: list[MemoryItem | None] = [None] * len(calls)
        worn = Worn()
        places = [place(call.partition.text, call.operation) for call in calls]
        for portion in _portions_by(places):
            for at, row in (yield from self._get_many(access, places, portion)):
                found[at] = item(row)
                if _refreshes(calls[at]):
                    worn.note(row)
        yield from worn.refresh(access, True)
        return found

    def _get_many(self, access: Access, places: Sequence[Place], portion: Sequence[int]) -> Steps[list[tuple[int, Row]]]:
        partitions, spaces, keys = zip(*(places[at] for at in portion), strict=True)
        columns = {"partitions": list(partitions), "ns": list(spaces), "keys": list(keys)}
        rows = yield from query("get_many", shared(access, dict.fromkeys(partitions)) | columns)
        return [(portion[row[0] - 1], row[1:]) for row in fresh(rows)]

    def _get_one(self, access: Access, call: Call) -> Steps[MemoryItem | None]:
        partition, ns, key = place(call.partition.text, call.operation)
        params = {"partition": partition, "ns": ns, "key": key, "refresh": _refreshes(call)}
        rows = yield from query("get_one", shared(access, [partition]) | params)
        return next((item(row) for row in fresh(rows)), None)

    def by_id(self, access: Access, call: Call, item_id: str) -> Steps[Kept | None]:
        """An item, if it's in a partition of the call."""
        partitions = yield from partitions_of(access, call)
        conditions = Conditions()
        conditions.visible(access)
        statement = composed("get_by_ids", columns=COLUMNS, where=conditions.sql())
        params = read(access, conditions) | {"ids": [item_id], "partitions": partitions}
        rows = yield from select(statement, params, enter(access, partitions))
        return next((Kept(item(row), row[WIDTH], bool(row[WIDTH + 1] or row[WIDTH + 2])) for row in fresh(rows)), None)

    # --- newest first -----------------------------------------------------------------------------------------

    def list_items(self, access: Access, call: Call, op: ListItems) -> Steps[list[MemoryItem]]:
        portions = list(portions_of((yield from partitions_of(access, call))))
        rows: list[Row] = []
        for partitions in portions:
            rows += yield from self._newest(access, op, partitions, alone=len(portions) == 1)
        # By the form that stands in keys, as pages are cut: a long namespace is its beginning and a hash there.
        rows.sort(key=lambda row: (-row[11].timestamp(), indexed(row[2]), row[3]))
        if len(portions) > 1:
            rows = rows[op.offset : op.offset + op.limit]
        worn = Worn()
        for row in rows:
            worn.note(row)
        yield from worn.refresh(access, op.refresh)
        return [item(row) for row in rows]

    def _newest(self, access: Access, op: ListItems, partitions: list[str], *, alone: bool) -> Steps[list[Row]]:
        equal, ends = contained(op.where), bounds(op.prefix)
        if len(partitions) == 1 and equal is not None and ends is not None:
            return (yield from self._newest_of_one(access, op, partitions[0], ends, equal))
        conditions = conditions_of(access, op.prefix, op)
        scope = scope_of(conditions, partitions)
        statement = composed("list_items", columns=COLUMNS, scope=scope, where=conditions.sql())
        page = {"limit": op.limit, "offset": op.offset} if alone else {"limit": op.offset + op.limit, "offset": 0}
        rows = yield from select(statement, read(access, conditions) | page, enter(access, partitions))
        return fresh(rows)

    def _newest_of_one(
        self, access: Access, op: ListItems, partition: str, ends: tuple[str, str], equal: dict[str, Any]
    ) -> Steps[list[Row]]:
        """The commonest filters, in one call: fields that equal something, or none."""
        params = {
            "partition": partition,
            "start": ends[0],
            "stop": ends[1],
            # The prefix that gives the partition its name is most of what it holds.
            "walk": ":".join(op.prefix) == partition or not op.prefix,
            "equal": dump(equal).decode() if equal else None,
            "limit": op.limit,
            "offset": op.offset,
        }
        return fresh((yield from query("newest", shared(access, [partition]) | params)))

    # --- namespaces -------------------------------------------------------------------------------------------

    def list_namespaces(self, access: Access, call: Call, op: ListNamespaces) -> Steps[list[Labels]]:
        portions = list(portions_of((yield from partitions_of(access, call))))
        found: dict[str, None] = {}
        for partitions in portions:
            rows = yield from self._namespaces(access, op, partitions, alone=len(portions) == 1)
            found |= dict.fromkeys(row[0] for row in rows)
        names = list(found)
        if len(portions) > 1:
            names = sorted(names)[op.offset : op.offset + op.limit]
        return [tuple(name.split("\x1f")) for name in names]

    def _namespaces(self, access: Access, op: ListNamespaces, partitions: list[str], *, alone: bool) -> Steps[list[Row]]:
        ends = _under(op)
        if len(partitions) == 1 and ends is not None:
            page = {"partition": partitions[0], "start": ends[0], "stop": ends[1], "limit": op.limit, "offset": op.offset}
            params = shared(access, partitions) | page | {"depth": op.max_depth or _UNLIMITED}
            return fresh((yield from query("namespaces", params)))
        conditions = Conditions()
        conditions.visible(access)
        for pattern in op.prefixes[:1]:
            conditions.under(literal_start(pattern))
        scope = scope_of(conditions, partitions)
        where = conditions.sql()
        statement = composed("list_namespaces", scope=scope, where=where, matching=matching(conditions, op.prefixes, op.suffixes))
        page = {"limit": op.limit, "offset": op.offset} if alone else {"limit": op.offset + op.limit, "offset": 0}
        params = read(access, conditions) | page | {"depth": op.max_depth or _UNLIMITED}
        rows = yield from select(statement, params, enter(access, partitions))
        return fresh(rows)


def _portions_by(places: Sequence[Place]) -> Iterator[list[int]]:
    """Positions of places, in portions that touch few partitions each."""
    by_partition: dict[str, list[int]] = {}
    for at, (partition, _, _) in enumerate(places):
        by_partition.setdefault(partition, []).append(at)
    for partitions in portions_of(list(by_partition)):
        yield [at for partition in partitions for at in by_partition[partition]]


def _under(op: ListNamespaces) -> tuple[str, str] | None:
    """The bounds of a listing under one plain prefix; None where there are patterns besides."""
    if op.suffixes or len(op.prefixes) > 1 or any("*" in pattern for pattern in op.prefixes):
        return None
    return bounds(op.prefixes[0] if op.prefixes else ())


def _refreshes(call: Call) -> bool:
    return isinstance(call.operation, Get) and call.operation.refresh
