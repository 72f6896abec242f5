"""The operations of `store.py`: how one call of each is made ready, and in which manner the calls are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from frame import Run, Sample, atimed, gathered, threaded, timed
from shelves import BATCH, Shelf, Side, Sides

THREADS = 16

Job = Callable[[], Any]
#: Makes ready one call of a store (values, embeddings), so that nothing but the call is timed.
Prepare = Callable[[Any, Shelf], Job]


def get(store: Any, shelf: Shelf) -> Job:
    op = shelf.old()
    return partial(store.get, op.namespace, op.key)


def aget(store: Any, shelf: Shelf) -> Job:
    op = shelf.old()
    return partial(store.aget, op.namespace, op.key)


def put(store: Any, shelf: Shelf) -> Job:
    op = shelf.new()
    return partial(store.put, op.namespace, op.key, op.value, op.index)


def put_update(store: Any, shelf: Shelf) -> Job:
    op = shelf.again()
    return partial(store.put, op.namespace, op.key, op.value, op.index)


def aput(store: Any, shelf: Shelf) -> Job:
    op = shelf.new()
    return partial(store.aput, op.namespace, op.key, op.value, op.index)


def batch_get(store: Any, shelf: Shelf) -> Job:
    return partial(store.batch, shelf.old_batch())


def batch_put(store: Any, shelf: Shelf) -> Job:
    return partial(store.batch, shelf.new_batch())


def batch_put_update(store: Any, shelf: Shelf) -> Job:
    return partial(store.batch, shelf.again_batch())


def search_filter(store: Any, shelf: Shelf) -> Job:
    return partial(store.search, shelf.owner(), filter={"cat": "c3"}, limit=10)


def search_vector(store: Any, shelf: Shelf) -> Job:
    return partial(store.search, shelf.owner(), query=shelf.question(), limit=10)


def list_namespaces(store: Any, shelf: Shelf) -> Job:
    return partial(store.list_namespaces, prefix=shelf.owner(), limit=100)


# --- manners of calling -------------------------------------------------------------------------------------------


def in_turn(side: Side, prepare: Prepare, calls: int) -> Run:
    jobs = [prepare(side.store, side.shelf) for _ in range(calls)]
    return timed(lambda n: jobs[n]())(calls)


def awaited(side: Side, prepare: Prepare, calls: int) -> Run:
    jobs = [prepare(side.astore, side.shelf) for _ in range(calls)]
    return atimed(lambda n: jobs[n](), side.runner)(calls)


def in_threads(side: Side, prepare: Prepare, calls: int) -> Run:
    return threaded([prepare(side.store, side.shelf) for _ in range(calls)], THREADS)


def at_once(side: Side, prepare: Prepare, calls: int) -> Run:
    return side.runner.run(gathered([[prepare(side.astore, side.shelf)] for _ in range(calls)]))


Manner = Callable[[Side, Prepare, int], Run]


@dataclass(frozen=True)
class Operation:
    """One row of the table. `calls` are those of a turn, `quick` those of a quick one."""

    name: str
    prepare: Prepare
    manner: Manner
    calls: int
    quick: int
    #: Items that one call is about.
    items: int = 1

    @property
    def concurrent(self) -> bool:
        return self.manner in (in_threads, at_once)

    def subjects(self, sides: Sides) -> dict[str, Sample]:
        return {side.aname if self.manner in (awaited, at_once) else side.name: partial(self._turn, side) for side in sides}

    def _turn(self, side: Side, calls: int) -> Run:
        run = self.manner(side, self.prepare, calls)
        return Run(run.calls, run.elapsed, self.items * calls)


#: Reads first: they meet the rows as they were filled in, the same on both sides.
READS = [
    Operation("get", get, in_turn, 500, 20),
    Operation("batch_get_100", batch_get, in_turn, 30, 2, BATCH),
    Operation("search_filter", search_filter, in_turn, 200, 10),
    Operation("list_namespaces", list_namespaces, in_turn, 100, 10),
    Operation("aget", aget, awaited, 500, 20),
]
WRITES = [
    Operation("put", put, in_turn, 200, 10),
    Operation("put_update", put_update, in_turn, 200, 10),
    Operation("batch_put_100", batch_put, in_turn, 20, 1, BATCH),
    Operation("batch_put_100_update", batch_put_update, in_turn, 20, 1, BATCH),
]
CONCURRENT = [
    Operation("aput", aput, awaited, 200, 10),
    Operation("threads_16_put", put, in_threads, 1_600, 64),
    Operation("gather_10000_put", aput, at_once, 10_000, 1_000),
]
OPERATIONS: Mapping[str, Sequence[Operation]] = {
    "plain": [*READS, *WRITES, *CONCURRENT],
    "text": [*READS, *WRITES, *CONCURRENT],
    "vectors": [Operation("search_vector", search_vector, in_turn, 100, 5), *WRITES],
}
NAMES = sorted({operation.name for operations in OPERATIONS.values() for operation in operations})
