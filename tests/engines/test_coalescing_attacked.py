"""Operations that travel together under attack: cancelled at a bad moment, failing oddly, told the wrong end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from databases import Database
from langgraph_navin import Caller, EngineRetryable, LegalHold, Navin, PolicyDenied, acting_as
from langgraph_navin.effects import Steps
from langgraph_navin.operations import Access, Call
from langgraph_navin.values import encode
from store_subjects import LetterCounts

NS = ("user", "u-1", "notes")
#: Seconds: long enough for anything that isn't stuck.
PATIENCE = 5.0


class Odd(BaseException):
    """As a test framework's or a green thread's own signals are: no `Exception`."""


class Trouble(LetterCounts):
    """A model that fails on one word, and waits on another."""

    def __init__(self) -> None:
        self.error: BaseException = ValueError("this model doesn't take that")
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        if any("poison" in text for text in texts):
            raise self.error
        if any("slow" in text for text in texts):
            self.asked.set()
            await self.go.wait()
        return self.embed_documents(texts)


@pytest.fixture
def model() -> Trouble:
    return Trouble()


@pytest.fixture
def navin(migrated18: Database, tenant: str, model: Trouble) -> Iterator[Navin]:
    index = {"dims": LetterCounts.dims, "embed": model, "fields": ["text"]}
    with Navin.open(migrated18.dsn, tenant=tenant, index=index) as navin:
        yield navin


def line(navin: Navin) -> Any:
    """The only line of the only loop."""
    ((made,),) = (lines.values() for lines in navin._together._loops.values())
    return made


async def ended(*calls: asyncio.Future[Any]) -> list[str]:
    """How calls ended, in a word each; "stuck" for those that didn't."""
    _, stuck = await asyncio.wait(calls, timeout=PATIENCE)
    for call in stuck:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    return ["stuck" if call in stuck else type(outcome).__name__ for call, outcome in zip(calls, outcomes, strict=True)]


def written(database: Database, tenant: str) -> set[str]:
    return {key for (key,) in database.rows("select key from navin.items where tenant_id = %s", tenant)}


async def test_a_batch_that_is_given_up_before_its_first_step_frees_its_places(navin: Navin) -> None:
    """A task that is cancelled before it has begun never enters its `try`: nothing counts it out again."""
    first, doomed = (asyncio.create_task(navin.store.aput(NS, key, {"n": 1})) for key in ("a", "b"))
    await asyncio.sleep(0)
    for _ in range(10):
        if line(navin)._tasks:
            break
        await asyncio.sleep(0)
    doomed.cancel()
    assert await ended(first, doomed) == ["NoneType", "CancelledError"]
    assert await ended(asyncio.create_task(navin.store.aput(NS, "b", {"n": 2}))) == ["NoneType"]


async def test_whoever_gives_up_early_again_and_again_stops_nobody(navin: Navin) -> None:
    """Four batches that are never counted out are all that a caller may have under way."""

    async def two(turn: int) -> None:
        await asyncio.gather(*(navin.store.aput(NS, f"{turn}-{n}", {}) for n in range(2)))

    for turn in range(30):
        call = asyncio.create_task(two(turn))
        for _ in range(turn % 6):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    await asyncio.sleep(0.1)
    assert await ended(*(asyncio.create_task(navin.store.aput(NS, f"after-{n}", {})) for n in range(3))) == ["NoneType"] * 3


@pytest.mark.parametrize(
    ("error", "told"),
    [(Odd(), "Odd"), (BaseExceptionGroup("odd", [Odd()]), "BaseExceptionGroup"), (asyncio.CancelledError(), "CancelledError")],
    ids=["signal", "group", "cancelled"],
)
async def test_a_model_that_fails_oddly_fails_its_own_text_alone(navin: Navin, model: Trouble, error: BaseException, told: str) -> None:
    """Such an error says nothing of the neighbours, and must not leave them waiting for ever."""
    model.error = error
    texts = ["poison" if n == 3 else f"text {n}" for n in range(6)]
    calls = [asyncio.create_task(navin.store.aput(NS, f"k-{n}", {"text": text})) for n, text in enumerate(texts)]
    assert await ended(*calls) == [told if n == 3 else "NoneType" for n in range(6)]


async def test_a_model_that_is_down_is_asked_side_by_side(navin: Navin, model: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without batches: one call after the other would take as long as all of them together."""
    at_once, most = 0, 0

    async def down(texts: list[str]) -> list[list[float]]:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        await asyncio.sleep(0)
        at_once -= 1
        raise ValueError("this model is down")

    monkeypatch.setattr(model, "aembed_documents", down)
    calls = [asyncio.create_task(navin.store.aput(NS, f"k-{n}", {"text": f"text {n}"})) for n in range(20)]
    assert await ended(*calls) == ["ValueError"] * 20
    assert most == 19


async def test_what_was_given_up_doesnt_overwrite_what_was_acknowledged_later(navin: Navin, model: Trouble) -> None:
    """A caller's time is up, he writes again by another way and is told that it is done: the first write must not come after."""
    calls = [asyncio.create_task(navin.store.aput(NS, key, {"text": "slow"})) for key in ("direct", "k", "neighbour")]
    await model.asked.wait()
    await asyncio.sleep(0.05)
    calls[1].cancel()
    assert await ended(calls[1]) == ["CancelledError"]
    await asyncio.to_thread(navin.store.put, NS, "k", {"text": "new"})
    model.go.set()
    assert await ended(calls[0], calls[2]) == ["NoneType"] * 2
    found = await navin.store.aget(NS, "k")
    assert found is not None
    assert found.value == {"text": "new"}


def away(error: Exception) -> Callable[..., Steps[Any]]:
    """A plan that ends as if the server had gone."""

    def plan(*_: object) -> Steps[Any]:
        yield from ()
        raise error

    return plan


async def test_who_was_written_is_told_so_where_a_neighbours_refusal_cant_be_noted(migrated18: Database, tenant: str) -> None:
    """Else the caller is told that nothing was changed, and that trying again is safe."""
    with Navin.open(migrated18.dsn, tenant=tenant, require_caller=True) as navin, acting_as(Caller(tenant, user_id="alice")):
        navin._together._service.engine.refuse = away(EngineRetryable("PostgreSQL didn't answer"))  # type: ignore[method-assign]
        owners = ["bob" if n == 7 else "alice" for n in range(20)]
        puts = [navin.store.aput(("user", owner), f"k-{n}", {"n": n}) for n, owner in enumerate(owners)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(outcomes[7], (PolicyDenied, EngineRetryable))
    stored = written(migrated18, tenant)
    assert {f"k-{n}" for n, outcome in enumerate(outcomes) if outcome is None} == stored


async def test_who_was_written_is_told_so_where_the_policy_changes_and_the_server_goes(
    navin: Navin, migrated18: Database, tenant: str
) -> None:
    await navin.store.aput(NS, "held", {"n": 0})
    migrated18.rows("update navin.items set held = true where tenant_id = %s", tenant)
    engine = navin._together._service.engine
    steps, count = engine.steps, iter(range(1_000))

    def changing(access: Access, calls: Sequence[Call]) -> Steps[Any]:
        # The first write goes by itself, the batch is refused, its first half is written, and then the policy changes.
        if next(count) == 3:
            migrated18.rows("insert into navin.epochs values (%s, 1)", tenant)
        return steps(access, calls)

    engine.steps = changing  # type: ignore[method-assign]
    engine.epoch = away(EngineRetryable("PostgreSQL didn't answer"))  # type: ignore[method-assign]
    puts = [navin.store.aput(NS, "held" if n == 9 else f"k-{n}", {"n": n}) for n in range(12)]
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(outcomes[9], (LegalHold, EngineRetryable))
    assert {f"k-{n}" for n, outcome in enumerate(outcomes) if outcome is None} == written(migrated18, tenant) - {"held"}


async def test_a_row_that_somebody_keeps_locked_fails_its_own_write_alone(migrated18: Database, tenant: str) -> None:
    """A server's limit to a wait is met by one write; the others would have been done at once."""
    with Navin.open(make_conninfo(migrated18.dsn, options="-c lock_timeout=200"), tenant=tenant) as navin:
        await navin.store.aput(NS, "locked", {"n": 0})
        with psycopg.connect(migrated18.dsn) as stranger:
            stranger.execute("select from navin.items where tenant_id = %s for update", (tenant,))
            puts = [navin.store.aput(NS, "locked" if n == 5 else f"k-{n}", {"n": n}) for n in range(8)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["EngineRetryable" if n == 5 else "NoneType" for n in range(8)]


async def test_what_the_application_changes_meanwhile_inside_a_dict_of_another_class_is_not_what_is_found(navin: Navin) -> None:
    value = {"text": "", "inner": OrderedDict(text="before")}
    calls = [asyncio.create_task(navin.store.aput(NS, f"k-{n}", value, index=["inner.text"])) for n in range(3)]
    await asyncio.sleep(0)
    value["inner"]["text"] = "afterwards"  # type: ignore[index]
    await asyncio.gather(*calls)
    texts = [lexeme for (index,) in navin_texts(navin) for lexeme in index]
    assert set(texts) == {"before"}


def navin_texts(navin: Navin) -> list[tuple[dict[str, Any]]]:
    """The text index of everything that this navin's tenant holds."""
    application = navin.store._identity.application
    assert application is not None
    with psycopg.connect(navin._connections._dsn) as connection:
        return connection.execute("select idx from navin.pending where tenant_id = %s", (application.tenant_id,)).fetchall()


def test_a_nested_value_is_checked_on_a_deep_stack_too() -> None:
    value: Any = 1
    for _ in range(190):
        value = {"a": value}

    def deep(left: int) -> bytes:
        return deep(left - 1) if left else encode({"v": value})

    # The recursion limit is a thousand frames, and the encoder needs none of them.
    assert deep(700).count(b"{") == 191
