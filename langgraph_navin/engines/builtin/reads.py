"""The engine's reads: by key, by id, newest first, by question, and the namespaces that hold something.

A read over whole scopes first asks which partitions there are and then goes through them in portions. The policy
epoch is compared in every statement that reads data; a stale one raises `StalePolicy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from psycopg.sql import SQL, Composable, Composed, Identifier

from ...abc import StalePolicy
from ...effects import Steps
from ...items import MemoryItem
from ...operations import Access, Call, Get, ListItems, ListNamespaces, Search
from ...scopes import Labels
from .bm25 import Scored, score
from .conditions import Conditions, literal_start, matching
from .documents import Place, listed, place
from .fusion import Hit, Ranking
from .lexemes import VERSION, lexemes
from .rows import COLUMNS, WIDTH, WORN, item
from .session import Reals
from .statements import Row, composed, query, select

#: Partitions in one statement: the policy compares each row with all of them.
PORTION = 200
#: Candidates of a first look, at least. Later looks take four times as many.
FIRST_LOOK = 50
_UNLIMITED = 2**31 - 1
#: How often a search starts again because an item changed between the scoring of its text and the look at its row.
PATIENCE = 4

#: pgvector's operator of each distance, and what makes a similarity of it: higher is better.
DISTANCES = {"cosine": "<=>", "l2": "<->", "inner_product": "<#>"}


@dataclass(slots=True)
class _Worn:
    """Items that a refreshing read found past their due, by the settings they are to be refreshed under."""

    parts: dict[str, None] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)

    def note(self, row: Row) -> None:
        if row[WORN]:
            self.parts[row[1]] = None
            self.ids.append(str(row[0]))

    def refresh(self, access: Access, asked: bool) -> Steps[None]:
        if asked and self.ids:
            yield from query("refresh", {"tenant": access.tenant, "parts": listed(self.parts), "ids": self.ids}, writes=True)


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

    def __init__(self, distance: str, vector_schema: str) -> None:
        self._distance = distance
        self._vector_schema = vector_schema

    # --- by key and id ----------------------------------------------------------------------------------------

    def get(self, access: Access, calls: Sequence[Call]) -> Steps[list[MemoryItem | None]]:
        if not calls:
            return []
        if len(calls) == 1:
            return [(yield from self._get_one(access, calls[0]))]
        found: list[MemoryItem | None] = [None] * len(calls)
        worn = _Worn()
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
        rows = yield from query("get_many", self._shared(access, dict.fromkeys(partitions)) | columns)
        return [(portion[row[0] - 1], row[1:]) for row in _fresh(rows)]

    def _get_one(self, access: Access, call: Call) -> Steps[MemoryItem | None]:
        partition, ns, key = place(call.partition.text, call.operation)
        params = {"partition": partition, "ns": ns, "key": key, "refresh": _refreshes(call)}
        rows = yield from query("get_one", self._shared(access, [partition]) | params)
        return next((item(row) for row in _fresh(rows)), None)

    def by_id(self, access: Access, call: Call, item_id: str) -> Steps[Kept | None]:
        """An item, if it's in a partition of the call."""
        partitions = yield from self._partitions(access, call)
        conditions = Conditions()
        conditions.visible(access)
        statement = composed("get_by_ids", columns=COLUMNS, where=conditions.sql())
        params = self._read(access, conditions) | {"ids": [item_id], "partitions": partitions}
        rows = yield from select(statement, params, self._enter(access, partitions))
        return next((Kept(item(row), row[WIDTH], bool(row[WIDTH + 1] or row[WIDTH + 2])) for row in _fresh(rows)), None)

    # --- newest first -----------------------------------------------------------------------------------------

    def list_items(self, access: Access, call: Call, op: ListItems) -> Steps[list[MemoryItem]]:
        portions = list(_portions((yield from self._partitions(access, call))))
        rows: list[Row] = []
        for partitions in portions:
            rows += yield from self._newest(access, op, partitions, alone=len(portions) == 1)
        if len(portions) > 1:
            rows.sort(key=lambda row: (-row[11].timestamp(), row[2], row[3]))
            rows = rows[op.offset : op.offset + op.limit]
        worn = _Worn()
        for row in rows:
            worn.note(row)
        yield from worn.refresh(access, op.refresh)
        return [item(row) for row in rows]

    def _newest(self, access: Access, op: ListItems, partitions: list[str], *, alone: bool) -> Steps[list[Row]]:
        conditions = _conditions(access, op.prefix, op)
        scope = _scope(conditions, partitions)
        statement = composed("list_items", columns=COLUMNS, scope=scope, where=conditions.sql())
        page = {"limit": op.limit, "offset": op.offset} if alone else {"limit": op.offset + op.limit, "offset": 0}
        rows = yield from select(statement, self._read(access, conditions) | page, self._enter(access, partitions))
        return _fresh(rows)

    # --- namespaces -------------------------------------------------------------------------------------------

    def list_namespaces(self, access: Access, call: Call, op: ListNamespaces) -> Steps[list[Labels]]:
        portions = list(_portions((yield from self._partitions(access, call))))
        found: dict[str, None] = {}
        for partitions in portions:
            rows = yield from self._namespaces(access, op, partitions, alone=len(portions) == 1)
            found |= dict.fromkeys(row[0] for row in rows)
        names = list(found)
        if len(portions) > 1:
            names = sorted(names)[op.offset : op.offset + op.limit]
        return [tuple(name.split("\x1f")) for name in names]

    def _namespaces(self, access: Access, op: ListNamespaces, partitions: list[str], *, alone: bool) -> Steps[list[Row]]:
        conditions = Conditions()
        conditions.visible(access)
        for pattern in op.prefixes[:1]:
            conditions.under(literal_start(pattern))
        scope = _scope(conditions, partitions)
        where = conditions.sql()
        statement = composed("list_namespaces", scope=scope, where=where, matching=matching(conditions, op.prefixes, op.suffixes))
        page = {"limit": op.limit, "offset": op.offset} if alone else {"limit": op.offset + op.limit, "offset": 0}
        params = self._read(access, conditions) | page | {"depth": op.max_depth or _UNLIMITED}
        rows = yield from select(statement, params, self._enter(access, partitions))
        return _fresh(rows)

    # --- by question ------------------------------------------------------------------------------------------

    def search(self, access: Access, call: Call, op: Search, vector: list[float] | None) -> Steps[list[MemoryItem]]:
        portions = list(_portions((yield from self._partitions(access, call))))
        for _ in range(PATIENCE):
            hits, whole = yield from self._best(access, op, portions, vector)
            if whole:
                break
        hits = hits[op.offset : op.offset + op.limit]
        worn = _Worn()
        for hit in hits:
            worn.note(hit.row)
        yield from worn.refresh(access, op.refresh)
        return [item(hit.row, hit.score) for hit in hits]

    def _best(self, access: Access, op: Search, portions: Sequence[list[str]], vector: list[float] | None) -> Steps[tuple[list[Hit], bool]]:
        """The ranking as far as it was asked for, and whether every scored version was still there to be looked at."""
        texts = yield from self._texts(access, op.query, portions)
        if vector is None and not len(texts):
            return [], True
        ranking = Ranking(texts, self._distance if vector is not None else None)
        wanted = op.offset + op.limit
        look = max(wanted, FIRST_LOOK)
        while (yield from self._look(access, op, portions, ranking, vector, look)):
            if ranking.settled(wanted, look):
                return ranking.best(), True
            look *= 4
        return ranking.best(), False

    def _texts(self, access: Access, question: str, portions: Sequence[list[str]]) -> Steps[Scored]:
        words = list(dict.fromkeys(lexemes(question)))
        rows: list[Row] = []
        for partitions in portions if words else []:
            params = self._shared(access, partitions) | {"partitions": partitions, "lexer": VERSION, "lexemes": words}
            rows += yield from query("text_hits", params)
        if any(row[0] for row in rows):
            raise StalePolicy
        if not rows:
            yield from self._confirm(access)
        return score(
            [(row[1], row[2]) for row in rows if row[1] is not None],
            [(row[3], row[4]) for row in rows if row[3] is not None],
            [(row[5], row[4]) for row in rows if row[5] is not None],
        )

    def _look(
        self, access: Access, op: Search, portions: Sequence[list[str]], ranking: Ranking, vector: list[float] | None, look: int
    ) -> Steps[bool]:
        """Fetch the `look` best texts and nearest vectors that meet the conditions; whether all of the texts were still there."""
        ranking.start()
        there = 0
        for partitions in portions:
            conditions = _conditions(access, op.prefix, op)
            params = {"vids": ranking.texts.vids[:look].tolist()}
            statement = self._candidates(conditions, partitions, vector is not None)
            if vector is not None:
                params |= {"vector": _reals(vector), "near": look}
            rows = yield from select(statement, self._read(access, conditions) | params, self._enter(access, partitions))
            if any(row[0] for row in rows):
                raise StalePolicy
            there += rows[0][1]
            ranking.add([Hit.of(row[2:], WIDTH) for row in rows if row[2] is not None], look)
        return there == len(ranking.texts.vids[:look])

    def _candidates(self, conditions: Conditions, partitions: list[str], vectors: bool) -> Composed:
        scope = _scope(conditions, partitions)
        if not vectors:
            return composed("text_only", columns=COLUMNS, scope=scope, where=conditions.sql())
        return composed(
            "hybrid",
            columns=COLUMNS,
            scope=scope,
            vector_scope=_scope(conditions, partitions, "v"),
            where=conditions.sql(),
            vector_schema=Identifier(self._vector_schema),
            distance=SQL(DISTANCES[self._distance]),
        )

    # --- shared -----------------------------------------------------------------------------------------------

    def _partitions(self, access: Access, call: Call) -> Steps[list[str]]:
        found = dict.fromkeys(p.text for p in call.reach.partitions)
        if call.reach.spans:
            rows = yield from query("partitions_of", {"tenant": access.tenant, "scopes": list(call.reach.scopes)})
            found |= dict.fromkeys(row[0] for row in rows)
        if not found:
            yield from self._confirm(access)
        return list(found)

    def _confirm(self, access: Access) -> Steps[None]:
        """Compare the policy epoch where there is nothing to read."""
        rows = yield from query("epoch_of", {"tenant": access.tenant})
        if rows[0][0] != access.epoch:
            raise StalePolicy

    def _shared(self, access: Access, partitions: Any) -> dict[str, Any]:
        return {
            "tenant": access.tenant,
            "parts": listed(partitions),
            "epoch": access.epoch,
            "ceiling": access.ceiling,
            "kinds": list(access.kinds) if access.kinds is not None else None,
        }

    def _read(self, access: Access, conditions: Conditions) -> dict[str, Any]:
        return {"tenant": access.tenant, "epoch": access.epoch, **conditions.params}

    def _enter(self, access: Access, partitions: Sequence[str]) -> dict[str, Any]:
        return {"tenant": access.tenant, "parts": listed(partitions)}


def _reals(vector: Sequence[float]) -> Any:
    return Reals(np.asarray(vector, np.float32))


def _portions_by(places: Sequence[Place]) -> Iterator[list[int]]:
    """Positions of places, in portions that touch few partitions each."""
    by_partition: dict[str, list[int]] = {}
    for at, (partition, _, _) in enumerate(places):
        by_partition.setdefault(partition, []).append(at)
    for partitions in _portions(list(by_partition)):
        yield [at for partition in partitions for at in by_partition[partition]]


def _portions(partitions: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(partitions), PORTION):
        yield partitions[start : start + PORTION]


def _conditions(access: Access, prefix: Labels, op: ListItems | Search) -> Conditions:
    conditions = Conditions()
    conditions.visible(access)
    conditions.under(prefix)
    conditions.meets(op.where)
    return conditions


def _scope(conditions: Conditions, partitions: list[str], table: str = "i") -> Composable:
    # One partition by equality: only then is the index walked in order.
    column = Identifier(table, "partition")
    if len(partitions) == 1:
        return SQL("{} = {}").format(column, conditions.bound(partitions[0]))
    return SQL("{} = any ({})").format(column, conditions.bound(partitions))


def _fresh(rows: Sequence[Row]) -> list[Row]:
    """The rows of an answer without its first column, which says that the policy changed, and without the empty answer."""
    if any(row[0] for row in rows):
        raise StalePolicy
    return [row[1:] for row in rows if row[1] is not None]


def _refreshes(call: Call) -> bool:
    return isinstance(call.operation, Get) and call.operation.refresh
