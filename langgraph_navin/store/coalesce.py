"""Single asynchronous operations of one caller that meet in one tick of an event loop travel as one batch (design 4).

`asyncio.gather` of thousands of `aput`s is then a few transactions instead of thousands. Nothing else changes: each
operation is decided, answered and refused by itself, none is left out because another asks the same. An operation
that meets nobody goes at once, in its own task. Two callers never share a batch, and reads never wait for writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context

from ..callers import Caller
from ..drive import arun
from ..operations import Answer, Forget, Get, Operation, Remember
from ..service import Service
from .flights import Asked, Flight, Place

#: Operations in one batch.
MOST = 500
#: Bytes of values in one batch, about.
HEAVIEST = 4_000_000
#: Batches of one caller and loop under way at once: the other connections are for everybody else.
SIDE_BY_SIDE = 8


class Coalescer:
    """What is under way, by event loop and caller, reads and writes apart."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loops: dict[asyncio.AbstractEventLoop, dict[tuple[Caller, bool], _Line]] = {}

    def ask(self, operation: Operation, caller: Caller) -> Awaitable[Answer]:
        """Carry out one operation, together with others of the same caller where there are any; await the answer at once.

        Raises what the operation alone would raise.
        """
        if not isinstance(operation, (Get, Remember, Forget)):
            # A read of many rows is a statement of its own anyway.
            return self._alone(operation, caller)
        place = None if isinstance(operation, Get) else (operation.namespace, operation.key)
        loop = asyncio.get_running_loop()
        lines, key = self._lines(loop), (caller, place is None)
        if (line := lines.get(key)) is not None:
            return line.wait(operation, place)
        line = lines[key] = _Line(self._service, caller, lambda: self._retire(loop, key))
        line.started(place)
        return self._first(line, operation, place, caller)

    async def _first(self, line: _Line, operation: Operation, place: Place, caller: Caller) -> Answer:
        try:
            return await self._alone(operation, caller)
        finally:
            line.ended([place])

    async def _alone(self, operation: Operation, caller: Caller) -> Answer:
        return (await arun(self._service.steps([operation], caller)))[0]

    def _lines(self, loop: asyncio.AbstractEventLoop) -> dict[tuple[Caller, bool], _Line]:
        if (lines := self._loops.get(loop)) is None:
            for other in list(self._loops):
                if other.is_closed():
                    self._loops.pop(other, None)
            lines = self._loops[loop] = {}
        return lines

    def _retire(self, loop: asyncio.AbstractEventLoop, key: tuple[Caller, bool]) -> None:
        lines = self._loops.get(loop, {})
        lines.pop(key, None)
        if not lines:
            self._loops.pop(loop, None)


class _Line:
    """What one caller asks in one event loop, in the order it was asked."""

    def __init__(self, service: Service, caller: Caller, retire: Callable[[], None]) -> None:
        self._service, self._caller, self._retire = service, caller, retire
        self._loop = asyncio.get_running_loop()
        #: Puts and deletes apart: a batch of both would have to take its turn in the database. Their order doesn't
        #: matter here, since no place waits twice.
        self._waiting: dict[type[Operation], deque[Asked]] = {Get: deque(), Remember: deque(), Forget: deque()}
        #: Places that wait or are under way, each with the writes that come after.
        self._places: dict[Place, deque[Asked] | None] = {}
        self._flights = 0
        self._scheduled = False
        #: An event loop holds its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    # --- in ---------------------------------------------------------------------------------------------------

    def wait(self, operation: Operation, place: Place) -> Asked:
        """Take a place in the line."""
        asked = Asked(operation, place)
        if place is None or place not in self._places:
            self._occupy(place)
            self._ready(asked)
        elif (followers := self._places[place]) is None:
            self._places[place] = deque([asked])
        else:
            followers.append(asked)
        return asked

    def _occupy(self, place: Place) -> None:
        if place is not None:
            self._places[place] = None

    def _ready(self, asked: Asked) -> None:
        self._waiting[type(asked.operation)].append(asked)
        if not self._scheduled:
            self._scheduled = True
            # In an empty context: nobody else's identity may be at hand while these are sent.
            self._loop.call_soon(self._flush, context=Context())

    # --- under way --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._scheduled = False
        while self._flights < SIDE_BY_SIDE and (kind := max(self._waiting.values(), key=len)):
            if batch := self._batch(kind):
                self._send(batch)
        if not self._flights and not any(self._waiting.values()):
            self._retire()

    def _batch(self, waiting: deque[Asked]) -> list[Asked]:
        batch: list[Asked] = []
        weight = 0
        while waiting and len(batch) < MOST and weight < HEAVIEST:
            asked = waiting.popleft()
            if asked.done():
                # Cancelled before it was sent: it never happens.
                self._free(asked.place)
            else:
                batch.append(asked)
                weight += len(asked.operation.value) if isinstance(asked.operation, Remember) else 0
        return batch

    def _send(self, batch: list[Asked]) -> None:
        self._flights += 1
        flight = Flight(batch)
        flight.task = task = self._loop.create_task(flight.fly(self._service, self._caller), context=Context())
        self._tasks.add(task)
        # Not at the end of the task itself: one that is cancelled before its first step has no end.
        task.add_done_callback(lambda task: self._landed(flight, task), context=Context())

    def _landed(self, flight: Flight, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        again = flight.landed()
        if flight.ended_from_outside:
            # It is the loop that ends: nothing of this line will be carried out any more.
            self._abandon()
        for asked in again:
            self._send([asked])
        self.ended([asked.place for asked in flight.batch if asked not in again])

    def _abandon(self) -> None:
        followers = [asked for after in self._places.values() if after for asked in after]
        for asked in (*(asked for waiting in self._waiting.values() for asked in waiting), *followers):
            asked.cancel()

    def started(self, place: Place) -> None:
        """One operation is under way by itself."""
        self._flights += 1
        self._occupy(place)

    def ended(self, places: list[Place]) -> None:
        """A flight is over: the next write of each place may go."""
        self._flights -= 1
        for place in places:
            self._free(place)
        if not self._scheduled and not self._loop.is_closed():
            self._flush()

    def _free(self, place: Place) -> None:
        if place is None:
            return
        if followers := self._places[place]:
            following = followers.popleft()
            self._waiting[type(following.operation)].append(following)
        else:
            del self._places[place]
