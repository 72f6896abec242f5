"""The engine's searches: the best texts and the nearest vectors of a question, fused, under conditions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...abc import StalePolicy
from ...effects import Steps
from ...items import MemoryItem
from ...operations import Access, Call, Search
from .asking import Worn, conditions_of, confirm, enter, partitions_of, portions_of, read, scope_of, shared
from .bm25 import Scored, score
from .fusion import Hit, Ranking
from .lexemes import VERSION, lexemes
from .nearest import Nearest, Wanted
from .rows import COLUMNS, WIDTH, item
from .statements import Row, composed, query, select

#: Candidates of a first look, at least. Later looks take four times as many.
FIRST_LOOK = 50
#: How often a search starts again because an item changed between the scoring of its text and the look at its row.
PATIENCE = 4


class Searches:
    """Plans of the operation `search`."""

    def __init__(self, distance: str, vector_schema: str) -> None:
        self._distance = distance
        self._nearest = Nearest(distance, vector_schema)

    def search(self, access: Access, call: Call, op: Search, vector: list[float] | None) -> Steps[list[MemoryItem]]:
        portions = list(portions_of((yield from partitions_of(access, call))))
        for _ in range(PATIENCE):
            hits, whole = yield from self._best(access, op, portions, vector)
            if whole:
                break
        hits = hits[op.offset : op.offset + op.limit]
        worn = Worn()
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
            params = shared(access, partitions) | {"partitions": partitions, "lexer": VERSION, "lexemes": words}
            rows += yield from query("text_hits", params)
        if any(row[0] for row in rows):
            raise StalePolicy
        if not rows:
            yield from confirm(access)
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
            conditions = conditions_of(access, op.prefix, op)
            scope = partial(scope_of, conditions, partitions)
            vids = ranking.texts.vids[:look].tolist()
            if vector is None:
                statement = composed("text_only", columns=COLUMNS, scope=scope(), where=conditions.sql())
                rows = yield from select(statement, read(access, conditions) | {"vids": vids}, enter(access, partitions))
            else:
                rows = yield from self._nearest.look(Wanted(access, partitions, conditions, scope, vids, vector, look))
            if any(row[0] for row in rows):
                raise StalePolicy
            there += rows[0][1]
            ranking.add([Hit.of(row[4:], WIDTH) for row in rows if row[4] is not None], look, rows[0][2])
        return there == len(ranking.texts.vids[:look])
