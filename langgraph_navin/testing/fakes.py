"""Stand-ins for what a test wants to hold still: the model, the clock, the outside world."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.store.base.embed import EmbeddingsLambda


class FakeEmbeddings(EmbeddingsLambda):
    """Vectors of texts without a model: texts that share words are near each other, equal texts have equal vectors.

    Each word counts in one of `dims` places, chosen by its hash; vectors have length 1. The same in every process.
    """

    def __init__(self, dims: int = 64) -> None:
        super().__init__(self._vectors)
        self.dims = dims

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        counts = [0.0] * self.dims
        for word in text.casefold().split() or [""]:
            counts[int.from_bytes(hashlib.sha256(word.encode()).digest()[:8]) % self.dims] += 1.0
        length = math.sqrt(sum(count * count for count in counts))
        return [count / length for count in counts]


class FixedClock:
    """A clock that moves only when told to. Call it for the time; it is in UTC.

    Args:
        step: how far it moves by itself after each reading, so that one thing happens after another.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), step: timedelta = timedelta(microseconds=1)) -> None:
        self._now = start
        self._step = step

    def __call__(self) -> datetime:
        now = self._now
        self._now += self._step
        return now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)


@dataclass
class RecordingSession:
    """Answers a plan's effects from a script and keeps what was asked.

    An answer that is an exception is raised. One session serves `run`; its `awaiting` face serves `arun`.
    """

    answers: Iterable[Any] = ()
    #: The effects so far, in their order.
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = iter(self.answers)

    def perform(self, effect: Any) -> Any:
        self.asked.append(effect)
        try:
            answer = next(self._left)
        except StopIteration:
            raise AssertionError(f"{type(effect).__name__} was asked for, and the script has no answer left") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def awaiting(self) -> _Awaiting:
        return _Awaiting(self)


@dataclass(frozen=True)
class _Awaiting:
    session: RecordingSession

    async def perform(self, effect: Any) -> Any:
        return self.session.perform(effect)
