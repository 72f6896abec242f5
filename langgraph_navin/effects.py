"""The I/O a plan may ask for. Nothing here performs any; `drive` does.

A plan is a generator: `answers = yield from dispatch(engine, plan)`. One asker per effect keeps the answers typed.
Rules: no `except BaseException` around a `yield from`; no clock, randomness or environment inside a plan.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from .abc import Engine

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Let an engine's plan run in a session of that engine."""

    engine: Engine
    plan: Steps[Any]


@dataclass(frozen=True, slots=True)
class Together:
    """Run these plans side by side; answers come back in the same order."""

    parts: tuple[Steps[Any], ...]


@dataclass(frozen=True, slots=True)
class Embed:
    """Vectors for these texts, one each. Asked for before any statement, so that no connection waits for a model."""

    texts: tuple[str, ...]
    #: Whether the texts are a question: some models embed questions differently.
    query: bool = False


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Which operations nobody waits for any more. Asked once, right before anything is sent: from then on they can't be left out."""


def dispatch(engine: Engine, plan: Steps[T]) -> Steps[T]:
    return cast("T", (yield Dispatch(engine, plan)))


def together(parts: Iterable[Steps[T]]) -> Steps[list[T]]:
    return cast("list[T]", (yield Together(tuple(parts))))


def embed(texts: Sequence[str], *, query: bool = False) -> Steps[list[list[float]]]:
    return cast("list[list[float]]", (yield Embed(tuple(texts), query)))


def given_up() -> Steps[frozenset[int]]:
    """The `id()` of each operation of this batch that was given up."""
    return cast("frozenset[int]", (yield GivenUp()))
