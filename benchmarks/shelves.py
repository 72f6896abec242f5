"""What the stores hold in a benchmark: notes of users, the same ones in every store, and how they get there.

    ("user", "u-7", "notes-3")  n-103  {"cat": "c3", "text": "…", …}

Everything follows from numbers, so that two stores that are asked for the same calls in the same order get the same
values. Texts are long enough for a value of some 400 bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import psycopg
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from frame import database
from langgraph_navin import Navin

DIMS = 384
USERS = 100
NAMESPACES = 50
CATEGORIES = 20
#: Operations in one batch, all of them about one user.
BATCH = 100
#: PostgresStore's connections. NavinStore keeps its default, at most 16.
POOL: Any = {"min_size": 4, "max_size": 4}

Namespace = tuple[str, ...]
Value = dict[str, Any]

_LETTERS = random.Random(0)
_WORDS = ["".join(_LETTERS.choices("abcdefghijklmnoprstuvw", k=_LETTERS.randint(3, 9))) for _ in range(2000)]


def text(name: str) -> str:
    """Some 300 characters of made-up words; another name, another text."""
    return " ".join(random.Random(name).choices(_WORDS, k=42))


def user(number: int) -> Namespace:
    return ("user", f"u-{number}")


class Hashed(Embeddings):
    """A direction in space for each text, drawn from its hash and kept: it costs nothing while a store is timed."""

    def __init__(self) -> None:
        self._known: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}

    def learn(self, told: str) -> None:
        if told not in self._known:
            seed = int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "big")
            drawn = np.random.default_rng(seed).standard_normal(DIMS)
            self._known[told] = drawn / np.linalg.norm(drawn)

    def embed_query(self, text: str) -> list[float]:
        self.learn(text)
        found: list[float] = self._known[text].tolist()
        return found

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(told) for told in texts]


@dataclass(frozen=True)
class Config:
    """What is searchable. `index` is the argument of each put."""

    name: Literal["plain", "text", "vectors"]
    index: Literal[False] | None
    embeds: bool = False


CONFIGS = [Config("plain", False), Config("text", None), Config("vectors", None, embeds=True)]


@dataclass
class Shelf:
    """Which item the next call of one store is about. Texts that it names are known to the model before they are timed."""

    rows: int
    index: Literal[False] | None = None
    model: Hashed | None = None
    _turns: Iterator[int] = field(default_factory=itertools.count)
    _fresh: Iterator[int] = field(default_factory=itertools.count)

    @property
    def users(self) -> int:
        """So many that each has a batch of items."""
        return max(1, min(USERS, self.rows // BATCH))

    def _value(self, name: str, category: int) -> Value:
        told = text(name)
        if self.model is not None:
            self.model.learn(told)
        return {"cat": f"c{category}", "text": told, "name": name, "stars": category % 5, "tags": ["note", "measured"], "done": False}

    def _put(self, owner: int, at: int, key: str, edition: str = "") -> PutOp:
        namespace = (*user(owner), f"notes-{at % NAMESPACES}")
        return PutOp(namespace, key, self._value(f"{owner}/{key}{edition}", at % CATEGORIES), index=self.index)

    def row(self, number: int, edition: str = "") -> PutOp:
        """One of the rows that are there from the start. Neighbours in time belong to different users."""
        owner, at = number % self.users, number // self.users
        return self._put(owner, at, f"n-{at}", edition)

    def filling(self, size: int) -> Iterator[list[PutOp]]:
        """Every row, in batches."""
        for start in range(0, self.rows, size):
            yield [self.row(number) for number in range(start, min(start + size, self.rows))]

    # --- what the next call is about --------------------------------------------------------------------------

    def owner(self) -> Namespace:
        return user(next(self._turns) % self.users)

    def question(self) -> str:
        return str(self._value(f"question {next(self._turns)}", 0)["text"])

    def old(self) -> GetOp:
        # A step that has no factor in common with the rows: neighbouring calls are about distant rows.
        op = self.row(next(self._turns) * 7919 % self.rows)
        return GetOp(op.namespace, op.key)

    def new(self) -> PutOp:
        number = next(self._fresh)
        return self._put(number % self.users, number // self.users, f"new-{number}")

    def again(self) -> PutOp:
        number = next(self._turns)
        return self.row(number * 7919 % self.rows, edition=f" {number}")

    def _one_users(self) -> tuple[int, Iterator[int]]:
        turn = next(self._turns)
        start = turn // self.users * BATCH
        there = max(1, self.rows // self.users)
        return turn, (turn % self.users + self.users * ((start + n) % there) for n in range(BATCH))

    def old_batch(self) -> list[GetOp]:
        return [GetOp(op.namespace, op.key) for op in map(self.row, self._one_users()[1])]

    def new_batch(self) -> list[PutOp]:
        number = next(self._fresh)
        return [self._put(number % self.users, n, f"new-{number}-{n}") for n in range(BATCH)]

    def again_batch(self) -> list[PutOp]:
        turn, numbers = self._one_users()
        return [self.row(number, edition=f" {turn}") for number in numbers]


@dataclass(frozen=True)
class Side:
    """One library's stores on one database, in both colours, and what they are asked next."""

    name: str
    store: BaseStore
    aname: str
    astore: BaseStore
    shelf: Shelf
    runner: asyncio.Runner


@dataclass
class Sides:
    """Ours and theirs, each in a database of its own on the same server, filled with the same rows."""

    ours: Side
    theirs: Side
    navin: Navin
    dsns: Sequence[str]

    def __iter__(self) -> Iterator[Side]:
        return iter((self.ours, self.theirs))

    def fill(self) -> dict[str, object]:
        """Put every row into both, and leave both tidy. What it took is no comparison but a fact: one run, one client."""
        size = BATCH if self.ours.shelf.model is not None else 1_000 if self.ours.shelf.rows <= 100_000 else 5_000
        took = dict.fromkeys((side.name for side in self), 0.0)
        for batch in self.ours.shelf.filling(size):
            for side in self:
                started = time.perf_counter()
                side.store.batch(batch)
                took[side.name] += time.perf_counter() - started
        self._tidy()
        return {"rows": self.ours.shelf.rows, "batch": size, **{f"{name} s": round(seconds, 2) for name, seconds in took.items()}}

    def _tidy(self) -> None:
        # What the filling left to do in the background must not be done while something is timed.
        while self.navin.maintenance.tick()["compacted"]:
            pass
        for dsn in self.dsns:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")


@contextmanager
def opened(server: str, config: Config, rows: int) -> Iterator[Sides]:
    """Both libraries' stores on empty databases of a server, set up; closed and dropped after the block."""
    model = Hashed() if config.embeds else None
    index: Any = {"dims": DIMS, "embed": model, "fields": ["text"]} if model is not None else None
    with ExitStack() as stack:
        dsns = [stack.enter_context(database(server)) for _ in range(2)]
        runner = stack.enter_context(asyncio.Runner())
        navin = stack.enter_context(Navin.open(dsns[0], index=index))
        theirs = stack.enter_context(PostgresStore.from_conn_string(dsns[1], pool_config=dict(POOL), index=index))  # type: ignore[arg-type]
        theirs.setup()
        later = AsyncExitStack()
        stack.callback(lambda: runner.run(later.aclose()))
        entering = later.enter_async_context(AsyncPostgresStore.from_conn_string(dsns[1], pool_config=dict(POOL), index=index))  # type: ignore[arg-type]
        atheirs = runner.run(entering)
        yield Sides(
            Side("NavinStore", navin.store, "NavinStore", navin.store, Shelf(rows, config.index, model), runner),
            Side("PostgresStore", theirs, "AsyncPostgresStore", atheirs, Shelf(rows, config.index, model), runner),
            navin,
            dsns,
        )
