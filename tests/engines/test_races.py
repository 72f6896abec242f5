"""Writers, readers and cancelled tasks that meet: nothing acknowledged is lost, nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from langgraph.store.base import Item, PutOp, SearchOp

from databases import Database
from langgraph_navin import Conflict, Navin, NavinStore
from langgraph_navin.effects import Steps
from langgraph_navin.engines.builtin.reads import Kept, Reads
from langgraph_navin.operations import Access, Call, ForgetItem, Update

NS = ("user", "u-1")


@pytest.fixture
def navin(migrated18: Database, tenant: str) -> Iterator[Navin]:
    with Navin.open(migrated18.dsn, tenant=tenant, connections=4) as navin:
        yield navin


def doomed(store: NavinStore, chance: random.Random) -> asyncio.Task[object]:
    """An operation that somebody will cancel."""
    space = ("user", f"u-{chance.randrange(20)}")
    operations = [
        store.asearch(space, limit=20),
        store.asearch(space, query="hello", limit=20),
        store.aget(space, "k-3"),
        store.abatch([PutOp(space, f"doomed-{n}", {"n": n}) for n in range(2)]),
    ]
    chosen = operations.pop(chance.randrange(4))
    for other in operations:
        other.close()
    return asyncio.create_task(chosen)


async def one_wave(store: NavinStore, number: int, chance: random.Random) -> None:
    """Writes that must stand once they have returned, among operations of which most are cancelled at one moment."""
    others = [doomed(store, chance) for _ in range(12)]
    writes = [asyncio.create_task(store.aput(NS, f"k-{number}-{half}", {"n": number})) for half in "ab"]
    await asyncio.sleep(chance.random() * 0.02)
    for task in others:
        if chance.random() < 0.6:
            task.cancel()
    await asyncio.gather(*writes)
    for ended in await asyncio.gather(*others, return_exceptions=True):
        assert ended is None or isinstance(ended, (list, Item, asyncio.CancelledError)), ended


@pytest.mark.parametrize("seed", range(3))
async def test_cancelled_operations_take_no_acknowledged_write_with_them(
    navin: Navin, migrated18: Database, tenant: str, seed: int
) -> None:
    """A connection that a cancelled operation left in a pipeline would answer the next write without ever committing it."""
    chance, waves = random.Random(seed), 150
    for user in range(20):
        navin.store.batch([PutOp(("user", f"u-{user}"), f"k-{n}", {"text": "hello world " * 20}) for n in range(20)])
    async with asyncio.timeout(90):
        for number in range(waves):
            await one_wave(navin.store, number, chance)
    stored = migrated18.rows("select key from navin.items where tenant_id = %s and partition = 'user:u-1'", tenant)
    assert {f"k-{number}-{half}" for number in range(waves) for half in "ab"} <= {key for (key,) in stored}


async def test_a_blocking_call_in_a_busy_loop_returns(migrated18: Database, tenant: str) -> None:
    with Navin.open(migrated18.dsn, tenant=tenant, connections=2) as navin:
        writes = [asyncio.create_task(navin.store.aput(NS, f"k-{n}", {"n": n})) for n in range(8)]
        await asyncio.sleep(0)
        # Both permits are with tasks of this very loop, which can't go on while this call blocks it.
        assert navin.store.get(NS, "absent") is None
        await asyncio.gather(*writes)
        assert len(navin.store.search(NS, limit=20)) == 8


def test_mixed_batches_of_many_writers_never_deadlock(migrated18: Database, tenant: str) -> None:
    def work(seed: int) -> None:
        chance = random.Random(seed)
        with Navin.open(migrated18.dsn, tenant=tenant, connections=1) as navin:
            for _ in range(15):
                keys = chance.sample(range(60), 40)
                navin.store.batch([PutOp(NS, f"k-{k}", None if chance.random() < 0.3 else {"n": k}) for k in keys])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [None] * 8


def refill_after(monkeypatch: pytest.MonkeyPatch, store: NavinStore) -> None:
    """Give the place to another item, right after an operation by id has read it."""
    read = Reads.by_id

    def by_id(self: Reads, access: Access, call: Call, item_id: str) -> Steps[Kept | None]:
        kept = yield from read(self, access, call, item_id)
        store.batch([PutOp(NS, "k", None)])
        store.put(NS, "k", {"text": "another one"})
        return kept

    monkeypatch.setattr(Reads, "by_id", by_id)


def id_of(database: Database, tenant: str) -> str:
    return str(database.value("select id from navin.items where tenant_id = %s and key = 'k'", tenant))


def test_an_operation_by_id_spares_what_took_the_place(
    navin: Navin, migrated18: Database, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    navin.store.put(NS, "k", {"text": "the old one"})
    old = id_of(migrated18, tenant)
    refill_after(monkeypatch, navin.store)
    with pytest.raises(Conflict):
        navin.perform(Update(old, b'{"text": "over it"}', {"text": "over it"}))
    monkeypatch.undo()
    found = navin.store.get(NS, "k")
    assert found is not None
    assert found.value == {"text": "another one"}
    old = id_of(migrated18, tenant)
    refill_after(monkeypatch, navin.store)
    receipt = navin.perform(ForgetItem(old))
    monkeypatch.undo()
    assert (receipt.found, receipt.erased_from) == (False, ())  # type: ignore[union-attr]
    assert navin.store.get(NS, "k") is not None


def test_a_search_finds_what_is_being_changed(navin: Navin) -> None:
    """Its text is scored in one snapshot and its row is read in the next: a change between them must not hide it."""
    navin.store.put(NS, "k", {"text": "memory 0"})
    stop, found = threading.Event(), list[int]()

    def search() -> None:
        while not stop.is_set():
            found.append(len(navin.store.search(NS, query="memory")))

    searcher = threading.Thread(target=search)
    searcher.start()
    for number in range(40):
        # Not in a tight loop: a search may start again a few times, not for ever.
        stop.wait(0.01)
        navin.store.put(NS, "k", {"text": f"memory {number}"})
    stop.set()
    searcher.join()
    assert len(found) > 10
    assert set(found) == {1}


def test_many_partitions_in_one_batch(navin: Navin) -> None:
    spaces = [("user", f"u-{uuid.uuid4().hex}") for _ in range(450)]
    navin.store.batch([PutOp(space, "k", {"text": f"one of many {n}"}) for n, space in enumerate(spaces)])
    found = navin.store.batch([op for space in spaces for op in (SearchOp(space, query="many"),)][:3])
    assert [len(hits) for hits in found] == [1, 1, 1]  # type: ignore[arg-type]
    assert len(navin.store.search(("user",), limit=1000)) == 450
    assert len(navin.store.search(("user",), query="many", limit=1000)) == 450
    pages = [item.key + str(item.namespace) for at in range(0, 450, 100) for item in navin.store.search(("user",), limit=100, offset=at)]
    assert len(set(pages)) == 450
