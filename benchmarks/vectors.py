"""One user with many vectors: does writing ever wait for the index, and what do searches gain by it.

A user's partition is filled, 384 dimensions in groups as those of real texts are, and searched by comparing every vector. Then
maintenance settles it: its vectors move under an HNSW index, and searches walk that. More are written meanwhile, which are
compared until they settle too: 700 and 5,000 of them. LangGraph's PostgresStore stands beside with fewer vectors, since its
index takes some 300 a second. Embeddings cost nothing here, and the texts have no words: vectors alone are measured.

Facts: seconds of filling and settling, and recall at 10, the share of the ten truly nearest that a search by index finds.

    python benchmarks/vectors.py --vectors 20000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.postgres import PostgresStore

from frame import RUNS, Report, Run, Sample, compare, database, options, reporting, server, timed
from langgraph_navin import Navin, NavinStore
from langgraph_navin.engines.builtin import settling
from langgraph_navin.engines.builtin.nearest import Nearest

DIMS, GROUPS = 384, 200
BATCH = 100
SPACE = ("user", "u-1", "notes")
OURS, COMPARED, THEIRS = "NavinStore", "NavinStore, all", "PostgresStore"
#: Questions that recall is taken from.
ASKED = 50

_centres = np.random.default_rng(0).normal(size=(GROUPS, DIMS))


def vector(text: str) -> list[float]:
    """Near those of the text's group; another one for every text."""
    found: list[float] = np.random.default_rng(list(text.encode())).normal(_centres[len(text) % GROUPS], 0.7).tolist()
    return found


def sign(number: int) -> str:
    """A text without words, another one for every number."""
    return "".join("#+"[bit == "1"] for bit in f"{number:b}") + "-" * (number % GROUPS)


INDEX: Any = {"dims": DIMS, "embed": lambda texts: [vector(text) for text in texts], "fields": ["text"]}


class Comparing(Nearest):
    """Never learns of an index, and so compares all vectors."""

    def _remember(self, place: tuple[str, str], served: int | None) -> None:
        pass


@contextmanager
def opened(dsn: str) -> Iterator[Navin]:
    """Our memory; vectors settle only when this benchmark says so."""
    with Navin.open(dsn, index=INDEX) as navin:
        navin.maintenance.stop()
        yield navin


@contextmanager
def theirs(dsn: str) -> Iterator[PostgresStore]:
    with PostgresStore.from_conn_string(dsn, pool_config={"min_size": 1, "max_size": 4}, index=INDEX) as store:
        store.setup()
        yield store


class Filling:
    """Puts the next vectors into a store, a batch a call; they are computed before."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self.count = 0

    def batch(self) -> list[PutOp]:
        ops = [PutOp(SPACE, f"k{n}", {"text": sign(n)}) for n in range(self.count, self.count + BATCH)]
        self.count += BATCH
        return ops

    def put(self, count: int) -> float:
        """So many more, and the seconds that it took."""
        started = time.perf_counter()
        for _ in range(count // BATCH):
            self._store.batch(self.batch())
        return time.perf_counter() - started

    def sample(self, calls: int) -> Run:
        run = timed(lambda _: self._store.batch(self.batch()))(calls)
        return Run(run.calls, run.elapsed, calls * BATCH)


class Bench:
    def __init__(self, report: Report, ours: Navin, comparing: NavinStore, other: PostgresStore, *, calls: int, runs: int) -> None:
        self.report, self.navin, self.comparing, self.other, self.calls, self.runs = report, ours, comparing, other, calls, runs
        self.mine, self.yours = Filling(ours.store), Filling(other)

    def fill(self, ours: int, others: int) -> None:
        self.report.facts["filling"] = {OURS: [ours, self.mine.put(ours)], THEIRS: [others, self.yours.put(others)]}

    def puts(self, operation: str) -> None:
        calls = max(1, self.calls // 10)
        subjects: dict[str, Sample] = {OURS: self.mine.sample, THEIRS: self.yours.sample}
        compare(self.report, operation, subjects, calls=calls, runs=self.runs, vectors=True)

    def searches(self, operation: str, stores: dict[str, BaseStore]) -> None:
        subjects = {name: timed(partial(ask, store)) for name, store in stores.items()}
        compare(self.report, operation, subjects, calls=self.calls, runs=self.runs, vectors=True)

    def settle(self) -> dict[str, int]:
        started = time.perf_counter()
        done: dict[str, int] = {}
        while True:
            tick = self.navin.maintenance.tick()
            done |= tick | {"settled": done.get("settled", 0) + tick["settled"]}
            if not tick["settled"]:
                break
        self.report.facts.setdefault("settling", []).append([done, time.perf_counter() - started])  # type: ignore[attr-defined]
        return done

    def run(self, ours: int, others: int, more: Sequence[int]) -> None:
        self.fill(ours, others)
        both: dict[str, BaseStore] = {OURS: self.navin.store, COMPARED: self.comparing}
        self.puts("batch of 100, before an index")
        self.searches("search, nothing settled", {OURS: self.navin.store, THEIRS: self.other})
        assert self.settle()["indexed"] == 1
        self.puts("batch of 100, beside the index")
        self.settle()
        self.searches("search, all settled", both | {THEIRS: self.other})
        self.report.facts["recall at 10"] = self.recall()
        fresh = 0
        for count in more:
            self.mine.put(count - fresh)
            fresh = count
            self.searches(f"search, {count} fresh", both)
        self.report.facts["vectors at the end"] = {OURS: self.mine.count, THEIRS: self.yours.count}

    def recall(self) -> float:
        shared = sum(len(ask(self.navin.store, n) & ask(self.comparing, n)) for n in range(ASKED))
        return shared / (10 * ASKED)


def ask(store: BaseStore, number: int) -> set[str]:
    """The keys of the ten items nearest to a question that nobody wrote."""
    return {item.key for item in store.search(SPACE, query=sign(10_000_000 + number), limit=10)}


def main(argv: Sequence[str] | None = None) -> None:
    """Fill, settle, search; print the table."""
    parser = options(__doc__ or "")
    parser.add_argument("--vectors", type=int, default=20_000, metavar="N", help="how many the user has (20,000)")
    parser.add_argument("--theirs", type=int, default=5_000, metavar="N", help="how many PostgresStore is given (5,000)")
    args = parser.parse_args(argv)
    if args.quick:
        args.vectors, args.theirs, settling.SETTLE_AT = 3_000, 500, 2_000
    with server(args.dsn) as dsn, reporting("vectors", args, dsn) as report:
        measure(report, dsn, args)
        for name, fact in report.facts.items():
            print(f"{name}: {fact}")


def measure(report: Report, dsn: str, args: argparse.Namespace) -> None:
    with database(dsn) as mine, database(dsn) as yours, opened(mine) as navin, opened(mine) as second, theirs(yours) as other:
        # The one private thing that is touched: how a second view of the same memories is kept from using the index.
        second._engine._searches._nearest = Comparing("cosine", "public")
        bench = Bench(report, navin, second.store, other, calls=20, runs=2 if args.quick else RUNS)
        bench.run(args.vectors, args.theirs, (700,) if args.quick else (700, 5_000))


if __name__ == "__main__":
    main()
