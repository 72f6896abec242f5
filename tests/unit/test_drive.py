"""The two drivers carry out a plan alike: answers, errors, cleaning up, side by side, and whose context it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pytest

from langgraph_navin.drive import arun, run
from langgraph_navin.effects import Steps, dispatch, together

T = TypeVar("T")
Drive = Callable[[Steps[Any]], Any]

caller: ContextVar[str] = ContextVar("caller", default="nobody")


@dataclass(frozen=True)
class Ask:
    """The one effect of the toy engine."""

    question: str


class Trouble(Exception):
    pass


@dataclass
class Toy:
    """An engine whose session answers questions, or fails where a question says so."""

    log: list[str] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    started: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    #: What "await the other" waits for.
    until: threading.Event = field(default_factory=threading.Event)

    name = "toy"

    def _answer(self, effect: Ask) -> str:
        self.log.append(effect.question)
        if effect.question.startswith("fail"):
            raise Trouble(effect.question) from KeyError("why")
        return f"{effect.question}!"

    def perform(self, effect: Ask) -> str:
        self._pause(effect)
        return self._answer(effect)

    def _pause(self, effect: Ask) -> None:
        if effect.question == "wait":
            self.started.set()
            assert self.release.wait(20)
        elif effect.question == "await the other":
            assert self.until.wait(20)

    @contextmanager
    def session(self) -> Iterator[Toy]:
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    @asynccontextmanager
    async def asession(self) -> AsyncIterator[Awaiting]:
        with self.session():
            yield Awaiting(self)


@dataclass
class Awaiting:
    toy: Toy

    async def perform(self, effect: Ask) -> str:
        await asyncio.to_thread(self.toy._pause, effect)
        return self.toy._answer(effect)


def ask(question: str) -> Steps[str]:
    answer: str = yield Ask(question)
    return answer


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Literal["sync", "async"]:
    chosen: Literal["sync", "async"] = request.param
    return chosen


@pytest.fixture
def drive(colour: str) -> Drive:
    """Carries out a plan in one of the colours."""
    return run if colour == "sync" else lambda steps: asyncio.run(arun(steps))


@pytest.fixture
def toy() -> Toy:
    return Toy()


# --- answers ----------------------------------------------------------------------------------------------------


def test_answers_go_where_they_were_asked_for(drive: Drive, toy: Toy) -> None:
    def inside() -> Steps[list[str]]:
        first = yield from ask("a")
        return [first, (yield from ask(f"{first}b"))]

    def plan() -> Steps[Any]:
        return (yield from dispatch(toy, inside())), (yield from dispatch(toy, ask("c")))  # type: ignore[arg-type]

    assert drive(plan()) == (["a!", "a!b!"], "c!")
    assert toy.log == ["a", "a!b", "c"]
    assert (toy.opened, toy.closed) == (2, 2)


def test_a_plan_that_asks_for_nothing_is_carried_out(drive: Drive) -> None:
    def plan() -> Steps[int]:
        yield from ()
        return 7

    assert drive(plan()) == 7


def test_an_effect_outside_an_engine_is_a_mistake_that_is_named(drive: Drive) -> None:
    with pytest.raises(TypeError, match="Ask was asked for outside"):
        drive(ask("a"))


# --- errors -----------------------------------------------------------------------------------------------------


def test_an_error_runs_the_plans_finally_and_ends_the_session(drive: Drive, toy: Toy) -> None:
    ended: list[str] = []

    def inside() -> Steps[None]:
        try:
            yield from ask("fail")
        finally:
            ended.append("inner")

    def plan() -> Steps[None]:
        try:
            yield from dispatch(toy, inside())  # type: ignore[arg-type]
        finally:
            ended.append("outer")

    with pytest.raises(Trouble, match="fail") as failed:
        drive(plan())
    assert isinstance(failed.value.__cause__, KeyError)
    assert ended == ["inner", "outer"]
    assert (toy.opened, toy.closed) == (1, 1)


def test_a_plan_may_answer_an_error_and_go_on(drive: Drive, toy: Toy) -> None:
    def inside() -> Steps[str]:
        try:
            return (yield from ask("fail"))
        except Trouble:
            return (yield from ask("again"))

    assert drive(dispatch(toy, inside())) == "again!"  # type: ignore[arg-type]
    assert toy.log == ["fail", "again"]


def test_a_cleaning_up_that_asks_is_answered(drive: Drive, toy: Toy) -> None:
    def inside() -> Steps[None]:
        try:
            yield from ask("fail")
        finally:
            yield from ask("tidy")

    with pytest.raises(Trouble):
        drive(dispatch(toy, inside()))  # type: ignore[arg-type]
    assert toy.log == ["fail", "tidy"]


def test_an_error_of_the_plan_itself_ends_the_session(drive: Drive, toy: Toy) -> None:
    def inside() -> Steps[None]:
        yield from ask("a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(dispatch(toy, inside()))  # type: ignore[arg-type]
    assert (toy.opened, toy.closed) == (1, 1)


async def test_cancellation_runs_the_plans_finally_and_ends_the_session(toy: Toy) -> None:
    ended: list[str] = []

    def inside() -> Steps[None]:
        try:
            yield from ask("wait")
        finally:
            ended.append("inside")

    task = asyncio.create_task(arun(dispatch(toy, inside())))  # type: ignore[arg-type]
    await asyncio.to_thread(toy.started.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    toy.release.set()
    assert ended == ["inside"]
    assert (toy.opened, toy.closed) == (1, 1)
    assert toy.log == []


# --- side by side -----------------------------------------------------------------------------------------------


def test_answers_keep_their_order(drive: Drive, toy: Toy) -> None:
    plan = together(dispatch(toy, ask(str(n))) for n in range(20))  # type: ignore[arg-type]
    assert drive(plan) == [f"{n}!" for n in range(20)]
    assert drive(together([])) == []


def test_parts_share_the_session_they_were_asked_for_in(drive: Drive, toy: Toy) -> None:
    assert drive(dispatch(toy, together([ask("a"), ask("b")]))) == ["a!", "b!"]  # type: ignore[arg-type]
    assert (toy.opened, toy.closed) == (1, 1)


def test_parts_run_at_once(drive: Drive, toy: Toy) -> None:
    def opens() -> Steps[str]:
        answer = yield from ask("open")
        toy.release.set()
        return answer

    # In turn, "wait" would never be released.
    assert drive(together([dispatch(toy, ask("wait")), dispatch(toy, opens())])) == ["wait!", "open!"]  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_error_among_parts_is_raised_bare_with_its_cause(drive: Drive, toy: Toy, at: int) -> None:
    parts = [dispatch(toy, ask("fail" if n == at else f"ok{n}")) for n in range(3)]  # type: ignore[arg-type]
    with pytest.raises(Trouble, match="fail") as failed:
        drive(together(parts))
    assert type(failed.value) is Trouble
    assert isinstance(failed.value.__cause__, KeyError)
    assert toy.opened == toy.closed


def test_a_plan_may_answer_an_error_among_parts(drive: Drive, toy: Toy) -> None:
    def plan() -> Steps[list[str]]:
        try:
            return (yield from together([dispatch(toy, ask("a")), dispatch(toy, ask("fail"))]))  # type: ignore[arg-type]
        except Trouble as error:
            return [str(error)]

    assert drive(plan()) == ["fail"]


def test_nothing_runs_on_after_an_error_was_raised(drive: Drive, toy: Toy) -> None:
    late = Toy()

    def fails() -> Steps[None]:
        yield from ask("await the other")
        threading.Timer(0.2, late.release.set).start()
        yield from ask("fail")

    toy.until = late.started
    with pytest.raises(Trouble):
        drive(together([dispatch(toy, fails()), dispatch(late, ask("wait"))]))  # type: ignore[arg-type]
    assert (late.opened, late.closed) == (1, 1)


def test_parts_inside_parts_never_wait_for_each_other(drive: Drive, toy: Toy) -> None:
    def inner(n: int) -> Steps[list[str]]:
        return together(dispatch(toy, ask(f"{n}.{m}")) for m in range(3))  # type: ignore[arg-type]

    answers: list[Any] = []
    worker = threading.Thread(target=lambda: answers.append(drive(together(inner(n) for n in range(40)))), daemon=True)
    worker.start()
    worker.join(30)
    assert answers == [[[f"{n}.{m}!" for m in range(3)] for n in range(40)]], "the parts wait for each other"


# --- contexts ---------------------------------------------------------------------------------------------------


def whose(drive: Drive) -> str:
    """Whose context a part has that runs beside another: the first waits until the second has told."""
    toy = Toy()

    def tells() -> Steps[str]:
        yield from ()
        toy.release.set()
        return caller.get()

    told: list[str] = drive(together([dispatch(toy, ask("wait")), tells()]))  # type: ignore[arg-type]
    return told[1]


def test_every_part_has_the_context_of_whoever_asked(drive: Drive) -> None:
    for name in ("ada", "bob", "nobody", "ada"):
        token = caller.set(name)
        assert whose(drive) == name
        caller.reset(token)


def test_threads_side_by_side_keep_their_own_context(drive: Drive) -> None:
    barrier = threading.Barrier(4)
    seen: dict[str, str] = {}

    def work(name: str) -> None:
        caller.set(name)
        barrier.wait(20)
        seen[name] = whose(drive)

    threads = [threading.Thread(target=work, args=(f"u-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == {f"u-{n}": f"u-{n}" for n in range(4)}
