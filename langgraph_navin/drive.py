"""Two drivers, one per colour: the only place where waiting is spelled.

They perform `Dispatch` (open the engine's session, run its plan) and `Together` themselves and hand every other
effect to the open session. Errors are thrown into the plan, so that its `finally` blocks run.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from .abc import AsyncSession, Session
from .effects import Dispatch, GivenUp, Steps, Together

T = TypeVar("T")


def run(steps: Steps[T], session: Session | None = None) -> T:
    """Carry out a plan, blocking."""
    try:
        effect = next(steps)
        while True:
            try:
                reply = _perform(effect, session)
            except BaseException as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(reply)
    except StopIteration as stop:
        return cast(T, stop.value)


def _perform(effect: Any, session: Session | None) -> Any:
    match effect:
        case Dispatch(engine, plan):
            with engine.session() as inner:
                return run(plan, inner)
        case Together(parts):
            return _side_by_side(parts, session)
        case GivenUp():
            # A blocking caller waits as long as its call lasts.
            return frozenset()
    return _session(effect, session).perform(effect)


def _side_by_side(parts: tuple[Steps[Any], ...], session: Session | None) -> list[Any]:
    # The first part runs here. Each has the caller's context.
    others = [_pool().submit(contextvars.copy_context().run, run, part, session) for part in parts[1:]]
    try:
        first = [run(part, session) for part in parts[:1]]
        # What no thread has begun runs here too: nested Togethers would wait for each other's turn for ever.
        return first + [run(part, session) if other.cancel() else other.result() for part, other in zip(parts[1:], others, strict=True)]
    finally:
        wait([other for other in others if not other.cancel()])


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=8, thread_name_prefix="navin")


#: Answers the effect `GivenUp`.
Asking: TypeAlias = Callable[[], frozenset[int]]


async def arun(steps: Steps[T], session: AsyncSession | None = None, *, given_up: Asking = frozenset) -> T:
    """Carry out a plan, awaiting."""
    try:
        effect = next(steps)
        while True:
            try:
                reply = await _aperform(effect, session, given_up)
            except BaseException as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(reply)
    except StopIteration as stop:
        return cast(T, stop.value)


async def _aperform(effect: Any, session: AsyncSession | None, given_up: Asking) -> Any:
    match effect:
        case Dispatch(engine, plan):
            async with engine.asession() as inner:
                return await arun(plan, inner, given_up=given_up)
        case Together(parts):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(arun(part, session, given_up=given_up)) for part in parts]
            except BaseExceptionGroup as failed:
                # Both colours raise the bare error, its own cause kept.
                raise failed.exceptions[0] from failed.exceptions[0].__cause__
            return [task.result() for task in tasks]
        case GivenUp():
            return given_up()
    return await _session(effect, session).perform(effect)


S = TypeVar("S")


def _session(effect: Any, session: S | None) -> S:
    if session is None:
        raise TypeError(f"{type(effect).__name__} was asked for outside an engine's plan")
    return session
