"""A batch of single operations under way, and what those who wait for it may do meanwhile: give up."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..callers import Caller
from ..drive import arun
from ..errors import NavinError
from ..operations import Answer, Operation
from ..scopes import Labels
from ..service import Failed, Service

#: Where a write goes: writes to one place keep the order they were asked in. Reads have none.
Place: TypeAlias = tuple[Labels, str] | None


class Asked(asyncio.Future[Answer]):
    """An operation, and the answer that its caller waits for."""

    def __init__(self, operation: Operation, place: Place) -> None:
        super().__init__()
        self.operation, self.place = operation, place
        self.flight: Flight | None = None
        #: Whether its caller was cancelled while it was being sent.
        self._given_up = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Give up.

        What wasn't sent yet never happens. What is being sent is settled first: else it could still be written after
        something that this caller does next. Whoever can't wait for that cancels once more.
        """
        flight = self.flight
        if self.done() or flight is None or not flight.sent or self._given_up:
            cancelled = super().cancel(msg)
        else:
            cancelled = self._given_up = True
        if cancelled and flight is not None:
            flight.given_up()
        return cancelled

    def settle(self, outcome: Answer | Failed, *, shared: bool) -> None:
        """Tell the caller, unless nobody listens any more."""
        if self.done():
            return
        if self._given_up:
            super().cancel()
        elif not isinstance(outcome, Failed):
            self.set_result(outcome)
        elif isinstance(outcome.error, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(_own(outcome.error) if shared else outcome.error)


class Flight:
    """Operations that travel together. What nobody waits for any more is cancelled, as it would be alone."""

    task: asyncio.Task[None]

    def __init__(self, batch: Sequence[Asked]) -> None:
        self.batch = batch
        #: Whether something may have been sent: until then an operation can be left out.
        self.sent = False
        #: Whether it was cancelled by somebody who doesn't know of it.
        self.ended_from_outside = False
        self._outcomes: Sequence[Answer | Failed] = ()
        for asked in batch:
            asked.flight = self

    async def fly(self, service: Service, caller: Caller) -> None:
        """Carry them out; the outcomes are told in `landed`."""
        plan = service.each([asked.operation for asked in self.batch], caller)
        self._outcomes = await arun(plan, given_up=self._sending)

    def _sending(self) -> frozenset[int]:
        self.sent = True
        return frozenset(id(asked.operation) for asked in self.batch if asked.done())

    def given_up(self) -> None:
        """Somebody doesn't wait any more."""
        if all(asked.done() or asked._given_up for asked in self.batch):
            self.task.cancel()

    def landed(self) -> Sequence[Asked]:
        """Tell everybody; what has to be tried again one by one is left over.

        That is for errors that say nothing of the others, such as a model's that doesn't take one of the texts.
        """
        error = self._error()
        waiting = [asked for asked in self.batch if not asked.done()]
        self.ended_from_outside = bool(self.task.cancelled() and self.task.cancelling() and not all(a._given_up for a in waiting))
        if error is not None and not self.sent and not self.task.cancelling() and len(self.batch) > 1:
            return waiting
        outcomes = self._outcomes if error is None else [Failed(error)] * len(self.batch)
        for asked, outcome in zip(self.batch, outcomes, strict=True):
            asked.settle(outcome, shared=len(self.batch) > 1)
        return ()

    def _error(self) -> BaseException | None:
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()


def _own(error: BaseException) -> BaseException:
    """A copy of an error that several are told: raised twice, one object would gather the tracebacks of both."""
    if not isinstance(error, NavinError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
