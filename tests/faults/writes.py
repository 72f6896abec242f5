"""Numbered writes whose whole outcome can be told afterwards from what a database holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from langgraph.store.base import PutOp

from langgraph_navin import Caller

Namespace: TypeAlias = tuple[str, ...]
Place: TypeAlias = tuple[Namespace, str]
Id: TypeAlias = tuple[int, int]

#: One namespace in each of three partitions.
USER, AGENT, SESSION = ("user", "u-1"), ("agent", "a-1"), ("session", "s-1")
#: A batch deletes what the batch this many numbers before it has put.
LAG = 3
_LETTERS = str.maketrans("0123456789", "abcdefghij")


def caller(tenant: str) -> Caller:
    """Who owns the three partitions in a tenant."""
    return Caller(tenant, user_id="u-1", agent_id="a-1", session_id="s-1")


@dataclass(frozen=True, slots=True)
class Write:
    """A worker's write number `n`: one put, or a batch over three partitions that also overwrites and deletes.

    A batch puts `a`, `b` and `c`, overwrites the worker's `head` and deletes `c` of an earlier batch. Nothing ever
    touches `a` again: it stands exactly where the write was carried out.
    """

    worker: int
    n: int
    batch: bool = False

    @property
    def id(self) -> Id:
        return self.worker, self.n

    @property
    def mark(self) -> Place:
        return USER, f"{self.worker}.{self.n}.a"

    @property
    def kept(self) -> list[Place]:
        """What stays for good, once put."""
        return [self.mark, (AGENT, f"{self.worker}.{self.n}.b")] if self.batch else [self.mark]

    @property
    def passing(self) -> Place:
        return SESSION, f"{self.worker}.{self.n}.c"

    @property
    def head(self) -> Place:
        return USER, f"{self.worker}.head"

    def later(self, by: int = LAG) -> Id:
        return self.worker, self.n + by

    def value(self, place: Place) -> dict[str, Any]:
        """What this write puts there. The text has a word of its own, and a length of its own."""
        part = place[1].rpartition(".")[2]
        return {"n": self.n, "text": f"{self.word}{part}" + " padding" * (self.n * 37 % 200)}

    @property
    def word(self) -> str:
        """A word of letters alone: one with digits would also be found by its parts."""
        return f"{self.worker}x{self.n}z".translate(_LETTERS)

    def ops(self) -> list[PutOp]:
        """The batch, as LangGraph's operations."""
        puts = [PutOp(*place, self.value(place)) for place in (*self.kept, self.passing, self.head)]
        earlier = Write(self.worker, self.n - LAG, batch=True)
        return [*puts, PutOp(*earlier.passing, None)] if self.n >= LAG else puts


What: TypeAlias = Literal["begun", "acknowledged", "refused", "unknown"]


class Notes(Protocol):
    """Takes note of what became of a write, in the moment its caller learns of it."""

    def note(self, what: What, write: Write) -> None: ...


class Ledger:
    """What callers were told about every write."""

    def __init__(self) -> None:
        self.begun: dict[Id, Write] = {}
        self.acknowledged: dict[Id, Write] = {}
        #: Told that nothing was changed.
        self.refused: dict[Id, Write] = {}
        #: Told that its fate isn't known.
        self.unknown: dict[Id, Write] = {}

    def note(self, what: What, write: Write) -> None:
        told: dict[Id, Write] = getattr(self, what)
        told[write.id] = write

    @property
    def in_flight(self) -> set[Id]:
        """Writes whose callers don't know what became of them: told so, or killed before they were told anything."""
        return self.begun.keys() - self.acknowledged.keys() - self.refused.keys()

    def last(self) -> list[Write]:
        """Every worker's newest write that was acknowledged."""
        newest: dict[int, Write] = {}
        for write in self.acknowledged.values():
            newest[write.worker] = max(write, newest.get(write.worker, write), key=lambda one: one.n)
        return list(newest.values())
