"""A partition that is large for a test: vectors in groups, as those of real texts are, and sight of what searches ask for."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import psycopg
from langgraph.store.base.embed import EmbeddingsLambda
from psycopg.sql import SQL

from databases import Database
from langgraph_navin.drive import run
from langgraph_navin.effects import Steps, dispatch
from langgraph_navin.engines.builtin.engine import BuiltinEngine
from langgraph_navin.engines.builtin.session import Model, configure
from langgraph_navin.engines.builtin.settling import settle
from langgraph_navin.engines.builtin.statements import Query, named
from langgraph_navin.engines.builtin.writing import Index
from langgraph_navin.operations import Call
from langgraph_navin.scopes import Partition
from langgraph_navin.testing.bench import USER, Bench, reach, write

T = TypeVar("T")

#: Vectors from which on a test's partition is large, and how many a large one has.
SETTLE_AT, COUNT = 400, 2_000
GROUPS = 40


class Groups(EmbeddingsLambda):
    """A text's vector is near those of its group, which its length chooses; equal texts have equal vectors."""

    def __init__(self, dims: int) -> None:
        super().__init__(lambda texts: [self._vector(text) for text in texts])
        self._centres = np.random.default_rng(0).normal(size=(GROUPS, dims))

    def _vector(self, text: str) -> list[float]:
        centre = self._centres[len(text) % GROUPS]
        vector: list[float] = np.random.default_rng(list(text.encode())).normal(centre, 0.6).tolist()
        return vector


def sign(number: int) -> str:
    """A text without words, so that the vectors decide alone; another one for every number."""
    return "".join("#+"[bit == "1"] for bit in f"{number:b}") + "-" * (number % GROUPS)


class Shelf(Bench):
    """One tenant's memories with vectors. Each shelf has an engine of its own: the first search of one compares everything."""

    def __init__(self, database: Database, tenant: str | None = None, *, dims: int = 64, distance: str = "cosine", **index: Any) -> None:
        self.database = database
        self.heard: list[Query] = []
        self._remade: dict[str, Any] = {"dims": dims, "distance": distance} | index
        groups = Groups(dims)
        self.vectors = groups.embed_documents
        model = Model(groups, dims)
        super().__init__(
            BuiltinEngine(database.engine.connections, Index(model=model, distance=distance, **{"fields": ("text",)} | index)),
            self._listening,
            tenant,
        )

    def _listening(self, plan: Steps[T]) -> T:
        with self.engine.session() as session:
            return run(plan, _Ear(session, self.heard))

    def again(self) -> Shelf:
        """The same memories, seen by an engine that knows of no index yet."""
        return Shelf(self.database, self.tenant, **self._remade)

    def fill(self, count: int = COUNT, at: Partition = USER, first: int = 0) -> None:
        for start in range(first, first + count, 500):
            batch = [write(f"k{n}", {"text": sign(n), "n": n}) for n in range(start, min(start + 500, first + count))]
            self.ask(*(Call(one, reach(at)) for one in batch))

    def settle(self, at: int = SETTLE_AT, *, thorough: bool = True) -> dict[str, int]:
        return run(dispatch(self.engine, settle(at, thorough=thorough)))

    def walked(self, question: str, **more: Any) -> list[str]:
        """The keys that a search finds which walks the index, and asks for nothing else."""
        self.search(question, limit=1)
        self.heard.clear()
        found = self.hits(question, **more)
        assert [one.once for one in self.heard if "near" in one.params] == [True]
        return found

    def plan(self, question: str) -> str:
        """How the server carries out the last walk, for the application's role."""
        self.walked(question, limit=10)
        asked = next(one for one in self.heard if one.once)
        with psycopg.connect(self.database.dsn) as connection:
            configure(connection)
            connection.execute(named()[asked.entry], asked.enter)
            assert connection.execute("select current_user").fetchone() == ("navin_app",)
            assert not isinstance(asked.statement, str)
            lines = connection.execute(SQL("explain ") + asked.statement, asked.params, prepare=False).fetchall()
            connection.rollback()
        return "\n".join(line for (line,) in lines)

    def counts(self) -> dict[str, int]:
        """How many vectors are in each table."""
        return {table: len(keys) for table, keys in self.kept().items()}

    def kept(self) -> dict[str, set[tuple[str, str, str]]]:
        """The vectors of each table: partition, key, field."""
        fresh = self.database.rows("select partition, key, field from navin.vectors where tenant_id = %s", self.tenant)
        settled = self.database.rows("select partition, key, field from navin.settled where tenant_id = %s", self.tenant)
        return {"fresh": set(fresh), "settled": set(settled)}


class _Ear:
    """Performs a plan's effects and keeps the statements."""

    def __init__(self, inner: Any, heard: list[Query]) -> None:
        self._inner, self._heard = inner, heard

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Query):
            self._heard.append(effect)
        return self._inner.perform(effect)
