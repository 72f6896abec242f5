"""Single asynchronous operations that meet in one tick travel together, and nobody can tell."""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from databases import Database
from langgraph_navin import Caller, EngineUnavailable, InvalidRequest, LegalHold, Navin, PolicyDenied, acting_as
from store_subjects import LetterCounts

NS = ("user", "u-1", "notes")
ROOM = contextvars.ContextVar("room", default="nobody's")


class Watched(LetterCounts):
    """Refuses one word, and remembers in whose context it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.seen.append((ROOM.get(), len(texts)))
        if any("poison" in text for text in texts):
            raise ValueError("this model doesn't take that")
        return super().embed_documents(texts)


@pytest.fixture
def navin(migrated18: Database, tenant: str) -> Iterator[Navin]:
    with Navin.open(migrated18.dsn, tenant=tenant) as navin:
        yield navin


def journal(database: Database, tenant: str) -> list[tuple[Any, ...]]:
    """Transaction, actor, operation, rule and version of every event."""
    return database.rows("select xid, actor, op, rule, version from navin.journal where tenant_id = %s order by seq", tenant)


async def settled(operations: Sequence[Any]) -> list[Any]:
    return await asyncio.gather(*operations, return_exceptions=True)


async def test_a_gather_is_few_transactions_and_one_event_each(navin: Navin, migrated18: Database, tenant: str) -> None:
    await asyncio.gather(*(navin.store.aput(NS, f"k-{n}", {"n": n}) for n in range(1_201)))
    events = journal(migrated18, tenant)
    assert len(events) == 1_201
    # The first goes by itself, the others in batches of 500.
    assert len({xid for xid, *_ in events}) == 4
    found = await asyncio.gather(*(navin.store.aget(NS, f"k-{n}") for n in range(1_201)))
    assert [item and item.value for item in found] == [{"n": n} for n in range(1_201)]


async def test_writes_to_one_key_keep_their_order_and_all_happen(navin: Navin, migrated18: Database, tenant: str) -> None:
    deeds = [navin.store.adelete(NS, "k") if n % 5 == 4 else navin.store.aput(NS, "k", {"n": n}) for n in range(23)]
    others = [navin.store.aput(NS, f"other-{n}", {"n": n}) for n in range(50)]
    await asyncio.gather(*deeds, *others)
    found = await navin.store.aget(NS, "k")
    assert found is not None
    assert found.value == {"n": 22}
    told = migrated18.rows(
        "select op, version from navin.journal where tenant_id = %s"
        " and item_id in (select item_id from navin.journal where tenant_id = %s and version = 3) order by seq",
        tenant,
        tenant,
    )
    whole = [("remember", 1), ("update", 2), ("update", 3), ("update", 4), ("forget", 4)]
    assert told == [*whole * 4, *whole[:3]]


async def test_callers_share_no_transaction(migrated18: Database, tenant: str) -> None:
    callers = [Caller(tenant, user_id=f"u-{n}") for n in range(6)]
    with Navin.open(migrated18.dsn, tenant=tenant, require_caller=True) as navin:
        views = [navin.store.bound(caller) for caller in callers]
        await asyncio.gather(*(view.aput(("notes",), f"k-{n}", {"n": n}) for n in range(20) for view in views))
    events = journal(migrated18, tenant)
    assert len(events) == 120
    assert all(len({actor for xid, actor, *_ in events if xid == one}) == 1 for one in {xid for xid, *_ in events})
    assert {actor for _, actor, *_ in events} == {caller.pseudonym() for caller in callers}


async def test_a_refused_operation_fails_alone_and_is_noted_once(migrated18: Database, tenant: str) -> None:
    alice = Caller(tenant, user_id="alice")
    with Navin.open(migrated18.dsn, tenant=tenant, require_caller=True) as navin, acting_as(alice):
        puts = [navin.store.aput(("user", "bob" if n == 17 else "alice"), f"k-{n}", {"n": n}) for n in range(40)]
        outcomes = await settled([*puts[:30], navin.store.aput(("user", "alice"), "bad", {"n": float("nan")}), *puts[30:]])
    assert {type(outcome) for at, outcome in enumerate(outcomes) if at not in (17, 30)} == {type(None)}
    assert isinstance(outcomes[17], PolicyDenied)
    assert isinstance(outcomes[30], InvalidRequest)
    events = journal(migrated18, tenant)
    assert [(op, rule) for _, _, op, rule, _ in events if rule] == [("remember", "user_partition")]
    assert len(events) == 40


async def test_what_stands_there_refuses_alone_and_is_noted_once(navin: Navin, migrated18: Database, tenant: str) -> None:
    await navin.store.aput(NS, "held", {"n": 0})
    migrated18.rows("update navin.items set held = true where tenant_id = %s", tenant)
    before = len(journal(migrated18, tenant))
    outcomes = await settled([navin.store.aput(NS, "held" if n == 70 else f"k-{n}", {"n": n}) for n in range(150)])
    assert isinstance(outcomes[70], LegalHold)
    assert [outcome for outcome in outcomes if outcome is not None] == [outcomes[70]]
    events = journal(migrated18, tenant)[before:]
    assert [(op, rule) for _, _, op, rule, _ in events if rule] == [("write", "legal_hold")]
    assert len(events) == 150


@pytest.fixture
def model() -> Watched:
    return Watched()


def watched(model: Embeddings) -> dict[str, Any]:
    return {"dims": LetterCounts.dims, "embed": model, "fields": ["text"]}


async def test_a_text_that_the_model_refuses_fails_alone(migrated18: Database, tenant: str, model: Watched) -> None:
    with Navin.open(migrated18.dsn, tenant=tenant, index=watched(model)) as navin:
        texts = ["poison" if n in (9, 33) else f"text {n}" for n in range(50)]
        outcomes = await settled([navin.store.aput(NS, f"k-{n}", {"text": text}) for n, text in enumerate(texts)])
        stored = await navin.store.asearch(NS, limit=100)
    assert [at for at, outcome in enumerate(outcomes) if outcome is not None] == [9, 33]
    assert all(isinstance(outcomes[at], ValueError) for at in (9, 33))
    assert {item.key for item in stored} == {f"k-{n}" for n in range(50) if n not in (9, 33)}


async def test_texts_of_one_tick_are_embedded_at_once_and_in_nobodys_context(migrated18: Database, tenant: str, model: Watched) -> None:
    with Navin.open(migrated18.dsn, tenant=tenant, index=watched(model)) as navin:
        ROOM.set("alice's")
        await asyncio.gather(*(navin.store.aput(NS, f"k-{n}", {"text": f"text {n}"}) for n in range(30)))
    # Alone, an operation stays in its own context, traces and callbacks included.
    assert model.seen == [("alice's", 1), ("nobody's", 29)]


async def test_what_the_application_changes_meanwhile_is_not_what_is_found(navin: Navin) -> None:
    value = {"inner": {"text": "before"}}
    deeds = [asyncio.create_task(navin.store.aput(NS, f"k-{n}", value)) for n in range(3)]
    await asyncio.sleep(0)
    value["inner"]["text"] = "afterwards"
    await asyncio.gather(*deeds)
    assert len(await navin.store.asearch(NS, query="before")) == 3
    assert await navin.store.asearch(NS, query="afterwards") == []


async def test_answers_are_each_callers_own(navin: Navin) -> None:
    await navin.store.aput(NS, "k", {"list": [1]})
    first, second = (await asyncio.gather(*(navin.store.aget(NS, "k") for _ in range(3))))[1:]
    assert first is not None
    assert second is not None
    first.value["list"].append(2)
    assert second.value == {"list": [1]}


async def test_a_server_that_is_away_is_away_for_all_and_each_is_told(navin: Navin) -> None:
    navin._connections.close()
    outcomes = await settled([navin.store.aput(NS, f"k-{n}", {"n": n}) for n in range(5)])
    assert all(isinstance(outcome, EngineUnavailable) for outcome in outcomes)
    # One error raised in five places would gather the tracebacks of all.
    assert len({id(outcome) for outcome in outcomes}) == 5


async def test_nothing_is_kept_of_what_is_over(navin: Navin) -> None:
    doomed = [asyncio.create_task(navin.store.aput(NS, f"k-{n % 3}", {"n": n})) for n in range(40)]
    await asyncio.sleep(0)
    for task in doomed[::2]:
        task.cancel()
    await settled(doomed)
    await asyncio.sleep(0)
    assert navin._together._loops == {}


async def test_large_values_are_spread_over_batches(navin: Navin, migrated18: Database, tenant: str) -> None:
    await asyncio.gather(*(navin.store.aput(NS, f"k-{n}", {"text": "x" * 900_000}, index=False) for n in range(16)))
    sizes = [count for (count,) in migrated18.rows("select count(*) from navin.journal where tenant_id = %s group by xid", tenant)]
    assert sum(sizes) == 16
    assert max(sizes) <= 5


def test_loops_in_threads_dont_meet(navin: Navin, migrated18: Database, tenant: str) -> None:
    async def some(name: str) -> None:
        await asyncio.gather(*(navin.store.aput(("user", name), f"k-{n}", {"n": n}) for n in range(200)))

    async def both() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, some(f"u-{uuid.uuid4()}")) for _ in range(4)))

    asyncio.run(both())
    assert migrated18.value("select count(*) from navin.items where tenant_id = %s", tenant) == 800
    assert navin._together._loops == {}
