"""The candidates of a question that has a vector: every vector compared, or those of one large partition walked by its index.

Both give true distances. The walk is only tried where it is the shorter way, and what it can't answer for certain, since
conditions left too few of what it saw, is compared after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from ...effects import Steps
from ...operations import Access
from .conditions import Conditions
from .documents import listed
from .rows import COLUMNS
from .session import Reals
from .settling import DISTANCES, indexed
from .statements import Row, composed, select

#: A step along an index costs as much as this many comparisons. A walk that takes longer than comparing all isn't begun.
STEP = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for, and how far."""

    access: Access
    partitions: Sequence[str]
    conditions: Conditions
    #: The condition that a table's rows, by its alias, belong to the partitions.
    scope: Callable[[str], Composable]
    vids: list[int]
    vector: Sequence[float]
    look: int

    @property
    def place(self) -> tuple[str, str]:
        return self.access.tenant, self.partitions[0]

    def params(self) -> dict[str, Any]:
        """The values of a statement; asked for when its conditions are complete."""
        # Never empty: a condition that nothing meets makes every index look fitting. No version is 0.
        bound = {"vids": self.vids or [0], "near": self.look, "vector": Reals(np.asarray(self.vector, np.float32))}
        return {"tenant": self.access.tenant, "epoch": self.access.epoch} | bound | self.conditions.params

    def enter(self) -> dict[str, Any]:
        return {"tenant": self.access.tenant, "parts": listed(self.partitions)}


class Nearest:
    """Looks for candidates, and remembers which partitions have an index: a search of one tells."""

    def __init__(self, distance: str, schema: str) -> None:
        self._distance, self._schema = distance, schema
        #: How many vectors each index serves. What has changed since costs time, and no result.
        self._served: dict[tuple[str, str], int] = {}

    def look(self, wanted: Wanted) -> Steps[list[Row]]:
        """Rows of the statement `hybrid`."""
        alone = len(wanted.partitions) == 1
        if alone and wanted.look * STEP <= self._served.get(wanted.place, 0):
            statement = self._by_index(wanted)
            rows = yield from select(statement, wanted.params(), wanted.enter() | {"look": wanted.look}, entry="enter_walk", once=True)
            # Without a horizon the walk ended early, and nobody knows what it would have found.
            if rows[0][2] is not None:
                return rows
        statement = self._exactly(wanted)
        rows = yield from select(statement, wanted.params(), wanted.enter(), entry="enter_near")
        if alone:
            self._remember(wanted.place, rows[0][3])
        return rows

    def _remember(self, place: tuple[str, str], served: int | None) -> None:
        if served is None:
            self._served.pop(place, None)
        else:
            self._served[place] = served

    def _exactly(self, wanted: Wanted) -> Composed:
        near = composed(
            "near_exactly",
            **self._operator(),
            fresh_scope=wanted.scope("f"),
            settled_scope=wanted.scope("s"),
            where=wanted.conditions.sql(),
        )
        return self._hybrid(wanted, near, SQL("null::float8"))

    def _by_index(self, wanted: Wanted) -> Composed:
        dims = len(wanted.vector)
        question = SQL("{}::real[]").format(Placeholder("vector"))
        settled = SQL("({} operator({}.{}) {})").format(
            indexed(Identifier("s", "embedding"), dims, self._schema),
            Identifier(self._schema),
            SQL(DISTANCES[self._distance]),
            indexed(question, dims, self._schema),
        )
        near = composed(
            "near_by_index",
            **self._operator(),
            apart=self._apart(),
            fresh_scope=wanted.scope("f"),
            settled_scope=wanted.scope("s"),
            settled_distance=settled,
            where=wanted.conditions.sql(),
        )
        return self._hybrid(wanted, near, composed("horizon"))

    def _hybrid(self, wanted: Wanted, near: Composed, horizon: Composable) -> Composed:
        return composed(
            "hybrid",
            columns=COLUMNS,
            near=near,
            apart=self._apart(),
            horizon=horizon,
            indexed=self._indexed(wanted),
            scope=wanted.scope("i"),
            where=wanted.conditions.sql(),
            vector_schema=Identifier(self._schema),
        )

    def _apart(self) -> Composed:
        return composed("apart", **self._operator())

    def _indexed(self, wanted: Wanted) -> Composable:
        if len(wanted.partitions) > 1:
            return SQL("null::bigint")
        way, dims = wanted.conditions.bound(self._distance), wanted.conditions.bound(len(wanted.vector))
        return composed("indexed", scope=wanted.scope("a"), way=way, dims=dims)

    def _operator(self) -> dict[str, Composable]:
        return {"vector_schema": Identifier(self._schema), "distance": SQL(DISTANCES[self._distance])}
