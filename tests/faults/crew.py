"""Workers that write and read through one store, on threads and in an event loop, and say what became of every write."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, Self, TypeAlias

from langgraph.store.base import Item

from faults.writes import USER, Ledger, Notes, Place, Write
from langgraph_navin.errors import EngineUnavailable
from langgraph_navin.store import NavinStore

#: `reads` and `areads` read what was acknowledged; those with an a work in an event loop, the others on threads.
Role: TypeAlias = Literal["puts", "batches", "upkeeps", "aputs", "gathers", "abatches", "reads", "areads"]
BLOCKING = ("puts", "batches", "upkeeps", "reads")
EVERYONE: tuple[Role, ...] = ("puts", "batches", "aputs", "gathers", "abatches", "reads", "areads")
#: Seconds, for things that take milliseconds.
PATIENCE = 60.0
#: Seconds between two attempts while the server is away: a few are enough, and many would keep it from coming back.
AWAY = 0.05
#: A place that nobody writes to.
NOTHING: Place = (USER, "nothing")
#: Single puts that travel together.
TOGETHER = 6


class Crew:
    """Works inside its `with` block. An error is excused where a fault was under way during the operation that met it."""

    def __init__(self, store: NavinStore, notes: Notes, roles: Sequence[Role], *, tick: Callable[[], object] | None = None) -> None:
        self._store, self._notes, self._roles, self._tick = store, notes, roles, tick
        #: Errors that no fault explains, and wrong answers.
        self.unexcused: list[str] = []
        self._going, self._ended, self._healthy = threading.Event(), threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._turns: Counter[int] = Counter()
        self._resting: set[int] = set()
        self._faults = 0
        self._reads_fail = False
        self._work: list[Future[None]] = []

    # --- what a test asks of it -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._going.set()
        self._healthy.set()
        workers = list(enumerate(self._roles))
        blocking = [(worker, role) for worker, role in workers if role in BLOCKING]
        awaiting = [(worker, role) for worker, role in workers if role not in BLOCKING]
        self._pool = ThreadPoolExecutor(len(blocking) + bool(awaiting))
        self._work = [self._pool.submit(getattr(self, f"_{role}"), worker) for worker, role in blocking]
        if awaiting:
            self._work.append(self._pool.submit(asyncio.run, self._loop(awaiting)))
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._going.set()
        self._healthy.set()
        self._pool.shutdown()
        for work in self._work:
            work.result()

    def turn(self) -> None:
        """Wait until every worker has completed an operation that began after this call."""
        before = Counter(self._turns)
        # The first to end may have been under way already.
        self._until(lambda: all(self._turns[worker] > before[worker] + 1 for worker in range(len(self._roles))))

    @contextmanager
    def fault(self, *, reads_fail: bool = False) -> Iterator[None]:
        """Something is done to the server or the connections: until the block ends, operations may fail."""
        self._reads_fail = reads_fail
        self._faults += 1
        self._healthy.clear()
        yield
        self._healthy.set()

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Nothing is in flight inside the block."""
        self._going.clear()
        self._until(lambda: len(self._resting) == len(self._roles))
        yield
        self._going.set()

    def _until(self, condition: Callable[[], bool]) -> None:
        def settled() -> bool:
            return condition() or any(work.done() for work in self._work)

        with self._changed:
            assert self._changed.wait_for(settled, PATIENCE), f"the workers stand still: {self._turns}"
        for work in self._work:
            if work.done():
                work.result()
                raise AssertionError("a worker ended by itself")

    # --- one operation ----------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, write: Write) -> Iterator[None]:
        excuse = self._excuse()
        self._notes.note("begun", write)
        try:
            yield
        except EngineUnavailable as error:
            self._notes.note("refused" if error.retryable else "unknown", write)
            self._judge(excuse, error)
        else:
            self._notes.note("acknowledged", write)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        excuse = self._excuse()
        try:
            yield
        except EngineUnavailable as error:
            # A read changes nothing, so that its error always says that trying again is safe.
            self._judge(excuse if self._reads_fail and error.retryable else None, error)

    def _excuse(self) -> int | None:
        """What has to change until an error is excused; -1 where it is already."""
        return self._faults if self._healthy.is_set() else -1

    def _judge(self, excuse: int | None, error: EngineUnavailable) -> None:
        if excuse is None or excuse == self._faults:
            self.unexcused.append(f"{type(error).__name__}: {error}")

    def _check(self, write: Write | None, how: str, items: Sequence[Item | None]) -> None:
        read = [(item.key, item.value) for item in items if item]
        if read != ([(write.mark[1], write.value(write.mark))] if write else []):
            self.unexcused.append(f"of {write.mark[1] if write else 'nothing'}, {how} reads {[key for key, _ in read]}")

    def _turned(self, worker: int) -> None:
        with self._changed:
            self._turns[worker] += 1
            self._changed.notify_all()

    def _rests(self, worker: int) -> None:
        with self._changed:
            self._resting.add(worker)
            self._changed.notify_all()
        self._going.wait()
        self._resting.discard(worker)

    # --- threads ----------------------------------------------------------------------------------------------

    def _numbers(self, worker: int) -> Iterator[int]:
        for n in itertools.count():
            if not self._going.is_set():
                self._rests(worker)
            if self._ended.is_set():
                return
            yield n
            self._turned(worker)
            self._healthy.wait(AWAY)

    def _puts(self, worker: int) -> None:
        for n in self._numbers(worker):
            write = Write(worker, n)
            with self._writing(write):
                self._store.put(*write.mark, write.value(write.mark))

    def _batches(self, worker: int) -> None:
        for n in self._numbers(worker):
            write = Write(worker, n, batch=True)
            with self._writing(write):
                self._store.batch(write.ops())

    def _upkeeps(self, worker: int) -> None:
        assert self._tick is not None
        for _ in self._numbers(worker):
            self._tick()

    def _reads(self, worker: int) -> None:
        for n in self._numbers(worker):
            write, store = self._sample(worker, n), self._store
            with self._reading():
                if write is None:
                    self._check(None, "get", [store.get(*NOTHING)])
                elif n % 4 == 3:
                    self._check(write, "search", store.search(USER, **_by_word(write)))
                else:
                    self._check(write, "get", [store.get(*write.mark)])

    def _sample(self, worker: int, n: int) -> Write | None:
        assert isinstance(self._notes, Ledger)
        known = list(self._notes.acknowledged.values())
        return random.Random(worker * 1_000_003 + n).choice(known) if known else None

    # --- an event loop ----------------------------------------------------------------------------------------

    async def _loop(self, workers: Sequence[tuple[int, Role]]) -> None:
        async with asyncio.TaskGroup() as group:
            for worker, role in workers:
                group.create_task(getattr(self, f"_{role}")(worker))

    async def _anumbers(self, worker: int) -> Any:
        for n in itertools.count():
            if not self._going.is_set():
                await asyncio.to_thread(self._rests, worker)
            if self._ended.is_set():
                return
            yield n
            self._turned(worker)
            if not self._healthy.is_set():
                await asyncio.to_thread(self._healthy.wait, AWAY)

    async def _aput(self, write: Write) -> None:
        with self._writing(write):
            await self._store.aput(*write.mark, write.value(write.mark))

    async def _aputs(self, worker: int) -> None:
        async for n in self._anumbers(worker):
            await self._aput(Write(worker, n))

    async def _gathers(self, worker: int) -> None:
        async for n in self._anumbers(worker):
            await asyncio.gather(*(self._aput(Write(worker, n * TOGETHER + one)) for one in range(TOGETHER)))

    async def _abatches(self, worker: int) -> None:
        async for n in self._anumbers(worker):
            write = Write(worker, n, batch=True)
            with self._writing(write):
                await self._store.abatch(write.ops())

    async def _areads(self, worker: int) -> None:
        async for n in self._anumbers(worker):
            write, store = self._sample(worker, n), self._store
            with self._reading():
                if write is None:
                    self._check(None, "get", [await store.aget(*NOTHING)])
                elif n % 4 == 3:
                    self._check(write, "search", await store.asearch(USER, **_by_word(write)))
                else:
                    self._check(write, "get", [await store.aget(*write.mark)])


def _by_word(write: Write) -> dict[str, Any]:
    return {"query": f"{write.word}a", "limit": 1}
