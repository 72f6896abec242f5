"""Single asynchronous operations of one caller that meet in one tick of an event loop travel as one batch (design 4).

`asyncio.gather` of thousands of `aput`s is then a few transactions instead of thousands. Nothing else changes: each
operation is decided, answered and refused by itself, none is left out because another asks the same. An operation
that meets nobody goes at once, in its own task. Two callers never share a batch, and reads never wait for writes.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, TypeAlias

from ..callers import Caller
from ..drive import arun
from ..errors import NavinError
from ..operations import Answer, Forget, Get, Operation, Remember
from ..scopes import Labels
from ..service import Failed, Service

#: Operations in one batch.
MOST = 500
#: Bytes of values in one batch, about.
HEAVIEST = 4_000_000
#: Batches of one caller and loop under way at once: the other connections are for everybody else.
SIDE_BY_SIDE = 4

#: Where a write goes: writes to one place keep the order they were asked in. Reads have none.
Place: TypeAlias = tuple[Labels, str] | None


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
        lines = self._lines(asyncio.get_running_loop())
        key = caller, place is None
        if (line := lines.get(key)) is not None:
            return line.wait(operation, place)
        line = lines[key] = _Line(self._service, caller, lambda: self._retire(lines, key))
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

    def _retire(self, lines: dict[tuple[Caller, bool], _Line], key: tuple[Caller, bool]) -> None:
        del lines[key]
        if not lines:
            self._loops.pop(asyncio.get_running_loop(), None)


class _Asked(asyncio.Future[Answer]):
    """An operation in its line, and the answer that its caller waits for."""

    def __init__(self, operation: Operation, place: Place) -> None:
        super().__init__()
        self.operation, self.place = operation, place
        self.flight: _Flight | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.flight is not None:
            self.flight.given_up()
        return cancelled

    def settle(self, outcome: Answer | Failed, *, shared: bool) -> None:
        if self.done():
            # Its caller was cancelled meanwhile; what was written stands.
            return
        if isinstance(outcome, Failed):
            self.set_exception(_own(outcome.error) if shared else outcome.error)
        else:
            self.set_result(outcome)


class _Flight:
    """A batch under way. What nobody waits for any more is cancelled, as it would be alone."""

    __slots__ = ("_awaited", "task")

    def __init__(self, task: asyncio.Task[None], awaited: int) -> None:
        self.task, self._awaited = task, awaited

    def given_up(self) -> None:
        self._awaited -= 1
        if not self._awaited:
            self.task.cancel()


class _Line:
    """What one caller asks in one event loop."""

    def __init__(self, service: Service, caller: Caller, retire: Callable[[], None]) -> None:
        self._service, self._caller, self._retire = service, caller, retire
        self._waiting: deque[_Asked] = deque()
        #: Places that wait or are under way, each with the writes that come after.
        self._places: dict[Place, deque[_Asked] | None] = {}
        self._flights = 0
        self._scheduled = False
        #: An event loop holds its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    # --- in ---------------------------------------------------------------------------------------------------

    def wait(self, operation: Operation, place: Place) -> _Asked:
        """Take a place in the line."""
        asked = _Asked(operation, place)
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

    def _ready(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        if not self._scheduled:
            self._scheduled = True
            # In an empty context: nobody else's identity may be at hand while these are sent.
            asyncio.get_running_loop().call_soon(self._flush, context=Context())

    # --- under way --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._scheduled = False
        while self._waiting and self._flights < SIDE_BY_SIDE:
            if batch := self._batch():
                self._flights += 1
                self._send(batch)
        if not self._waiting and not self._flights:
            self._retire()

    def _send(self, batch: list[_Asked]) -> None:
        task = asyncio.get_running_loop().create_task(self._fly(batch), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        flight = _Flight(task, len(batch))
        for asked in batch:
            asked.flight = flight

    def _batch(self) -> list[_Asked]:
        batch: list[_Asked] = []
        weight = 0
        while self._waiting and len(batch) < MOST and weight < HEAVIEST:
            asked = self._waiting.popleft()
            if asked.done():
                # Cancelled before it was sent: it never happens.
                self._free(asked.place)
            else:
                batch.append(asked)
                weight += len(asked.operation.value) if isinstance(asked.operation, Remember) else 0
        return batch

    async def _fly(self, batch: list[_Asked]) -> None:
        try:
            for asked, outcome in zip(batch, await self._outcomes(batch), strict=True):
                asked.settle(outcome, shared=len(batch) > 1)
        except asyncio.CancelledError:
            # Where somebody still waits, it is the loop that ends, and nothing of this line will be carried out any more.
            if any(not asked.done() for asked in batch):
                self._abandon(batch)
            raise
        finally:
            self.ended([asked.place for asked in batch])

    def _abandon(self, batch: Sequence[_Asked]) -> None:
        followers = [asked for after in self._places.values() if after for asked in after]
        for asked in (*batch, *self._waiting, *followers):
            asked.cancel()

    async def _outcomes(self, batch: Sequence[_Asked]) -> Sequence[Answer | Failed]:
        try:
            return await arun(self._service.each([asked.operation for asked in batch], self._caller))
        except Exception as error:
            return [Failed(error)] * len(batch)

    def started(self, place: Place) -> None:
        """One operation is under way by itself."""
        self._flights += 1
        self._occupy(place)

    def ended(self, places: Sequence[Place]) -> None:
        """A flight is over: the next write of each place may go."""
        self._flights -= 1
        for place in places:
            self._free(place)
        if not self._scheduled:
            self._flush()

    def _free(self, place: Place) -> None:
        if place is None:
            return
        if followers := self._places[place]:
            self._waiting.append(followers.popleft())
        else:
            del self._places[place]


def _own(error: Exception) -> Exception:
    """A copy of an error that several are told: raised twice, one object would gather the tracebacks of both."""
    if not isinstance(error, NavinError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
