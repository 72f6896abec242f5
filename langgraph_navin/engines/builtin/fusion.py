"""Texts and vectors, fused into one ranking.

An item's score doesn't depend on which candidates were looked at, so pages never shift: BM25 divided by the best BM25
of the question, and the vector's similarity, in equal parts; BM25 alone where there is no model. The candidates are
looked at until none of the unseen could still belong among the best (Fagin's threshold).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .bm25 import Scored

#: The text's share of a fused score.
TEXT_SHARE = 0.5


@dataclass(slots=True)
class Hit:
    """A candidate: its row, its version, and the distance of its nearest vector."""

    row: tuple[Any, ...] = field(repr=False)
    vid: int
    distance: float | None
    near: bool
    score: float = 0.0

    @classmethod
    def of(cls, row: tuple[Any, ...], width: int) -> Hit:
        distance = row[width + 1]
        if distance is not None and math.isnan(distance):
            # A vector of zeros has no direction: it is like nothing, as an item without a vector.
            distance = None
        return cls(row[:width], row[width], distance, bool(row[width + 2]) if len(row) > width + 2 else False)


class Ranking:
    """The candidates of one question so far, best first."""

    def __init__(self, texts: Scored, distance: str | None) -> None:
        self.texts = texts
        self._distance = distance
        self._best = float(texts.scores[0]) if len(texts) else 0.0
        self._said = dict(zip(texts.vids.tolist(), texts.scores.tolist(), strict=True))
        self.start()

    def start(self) -> None:
        """Forget the candidates: another, wider look begins."""
        self._hits: list[Hit] = []
        self._horizon: float | None = None

    def add(self, hits: list[Hit], look: int, horizon: float | None = None) -> None:
        """Take one portion's candidates. If it had more vectors than were asked for, the last one bounds the unseen.

        Args:
            horizon: the distance beyond which the unseen are, where it was told rather than left to the `near` hits.
        """
        near = [hit for hit in hits if hit.near]
        if len(near) >= look:
            self._bounded_by(min(self._similarity(hit.distance) if hit.distance is not None else 0.0 for hit in near))
        if horizon is not None:
            self._bounded_by(0.0 if math.isnan(horizon) else self._similarity(horizon))
        for hit in hits:
            hit.score = self._fused(self._said.get(hit.vid, 0.0), hit.distance)
        self._hits += hits

    def _bounded_by(self, similarity: float) -> None:
        self._horizon = similarity if self._horizon is None else max(self._horizon, similarity)

    def settled(self, wanted: int, look: int) -> bool:
        """Whether nothing unseen could be among the `wanted` best."""
        more_texts = len(self.texts) > look
        if not more_texts and self._horizon is None:
            return True
        best = self.best()
        return len(best) >= wanted and (wanted == 0 or best[wanted - 1].score > self._bound(look, more_texts))

    def _bound(self, look: int, more_texts: bool) -> float:
        unsaid = float(self.texts.scores[look]) if more_texts else 0.0
        if self._distance is None:
            return unsaid
        # A text beyond the look may have a vector near to all seen, or none: then only its words count.
        similarity = self._horizon if self._horizon is not None else 0.0
        return self._share(unsaid) + (1 - self._weight()) * max(similarity, 0.0)

    def best(self) -> list[Hit]:
        return sorted(self._hits, key=lambda hit: (-hit.score, hit.row[2], hit.row[3]))

    def _weight(self) -> float:
        return TEXT_SHARE if self._best else 0.0

    def _share(self, said: float) -> float:
        return self._weight() * said / self._best if self._best else 0.0

    def _fused(self, said: float, distance: float | None) -> float:
        if self._distance is None:
            return said
        similarity = self._similarity(distance) if distance is not None else 0.0
        return self._share(said) + (1 - self._weight()) * similarity

    def _similarity(self, distance: float) -> float:
        """Higher is better, and 0 for what has nothing to do with the question."""
        match self._distance:
            case "cosine":
                return 1.0 - distance
            case "l2":
                return 1.0 / (1.0 + distance)
        return -distance
