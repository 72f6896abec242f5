"""Many callers at once: instances, threads, tasks, and batches of any size."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from langgraph.store.base import GetOp, Item, Op, PutOp, Result, SearchOp

from databases import Database, fresh
from langgraph_navin import Navin

NS = ("user", "u-1")
INSTANCES = 8


@pytest.fixture
def database(server_dsn: str) -> Iterator[Database]:
    """A database of the test's own, so that its rows and deadlocks can be counted."""
    with fresh(server_dsn, migrate=True) as made:
        yield made


@pytest.fixture
def navin(database: Database) -> Iterator[Navin]:
    with Navin.open(database.dsn) as opened:
        yield opened


# --- crossing batches -------------------------------------------------------------------------------------------

#: 0.6 seconds: items are prolonged by reads, expire and are swept while the batches cross.
BRIEF = 0.01


def crossing(chance: random.Random) -> list[Op]:
    """Forty operations on forty of sixty keys, in any order."""
    return [_one(chance, f"k-{n}") for n in chance.sample(range(60), 40)]


def _one(chance: random.Random, key: str) -> Op:
    choices: list[Op] = [
        PutOp(NS, key, {"text": f"green tea {chance.random()}"}),
        PutOp(NS, key, {"text": "black tea"}, ttl=BRIEF),
        PutOp(NS, key, None),
        GetOp(NS, key, refresh_ttl=True),
        SearchOp(NS, query="tea" if chance.random() < 0.5 else None, limit=3, refresh_ttl=True),
    ]
    return chance.choices(choices, [6, 6, 4, 6, 1])[0]


def instances(stack: ExitStack, database: Database) -> list[Navin]:
    """Eight of them, each sweeping as often as it can."""
    ttl = {"sweep_interval_minutes": 0.0005}
    return [stack.enter_context(Navin.open(database.dsn, ttl=ttl, connections=2)) for _ in range(INSTANCES)]


def fits(op: Op, result: Result) -> bool:
    """Whether an operation could have been answered so."""
    if isinstance(op, SearchOp):
        return isinstance(result, list)
    return result is None or (isinstance(op, GetOp) and isinstance(result, Item) and result.key == op.key)


def deadlocks(database: Database) -> int:
    """What the server counted. A backend reports as it ends, so the instances are closed before."""
    return int(database.value("select deadlocks from pg_stat_database where datname = current_database()"))


def test_crossing_batches_of_eight_instances_in_threads(database: Database) -> None:
    def work(navin: Navin, chance: random.Random) -> bool:
        batches = [crossing(chance) for _ in range(12)]
        return all(fits(op, result) for ops in batches for op, result in zip(ops, navin.store.batch(ops), strict=True))

    with ExitStack() as stack:
        navins = instances(stack, database)
        with ThreadPoolExecutor(INSTANCES) as pool:
            assert list(pool.map(work, navins, map(random.Random, range(INSTANCES)))) == [True] * INSTANCES
    assert deadlocks(database) == 0


async def test_crossing_batches_of_eight_instances_in_one_loop(database: Database) -> None:
    async def work(navin: Navin, chance: random.Random) -> bool:
        batches = [crossing(chance) for _ in range(12)]
        answered = await asyncio.gather(*(navin.store.abatch(ops) for ops in batches))
        return all(
            fits(op, result) for ops, results in zip(batches, answered, strict=True) for op, result in zip(ops, results, strict=True)
        )

    with ExitStack() as stack:
        navins = instances(stack, database)
        assert all(await asyncio.gather(*(work(navin, random.Random(seed)) for seed, navin in enumerate(navins))))
    assert deadlocks(database) == 0


async def test_crossing_single_operations_of_eight_instances(database: Database) -> None:
    """Single operations that travel together are a batch like any other."""

    async def one(navin: Navin, op: Op) -> bool:
        return fits(op, (await navin.store.abatch([op]))[0])

    with ExitStack() as stack:
        navins = instances(stack, database)
        asked = [(navin, op) for seed, navin in enumerate(navins) for op in crossing(random.Random(seed)) * 4]
        random.Random(7).shuffle(asked)
        assert all(await asyncio.gather(*(one(navin, op) for navin, op in asked)))
    assert deadlocks(database) == 0


# --- instances --------------------------------------------------------------------------------------------------


def test_eight_threads_open_one_empty_database_at_once(server_dsn: str) -> None:
    with fresh(server_dsn) as database:
        barrier = threading.Barrier(INSTANCES)

        def first(number: int) -> None:
            barrier.wait(30)
            with Navin.open(database.dsn) as navin:
                navin.store.put(NS, f"k-{number}", {"n": number})

        with ThreadPoolExecutor(INSTANCES) as pool:
            assert list(pool.map(first, range(INSTANCES))) == [None] * INSTANCES
        assert database.value("select count(*) from navin.items") == INSTANCES


def test_what_one_instance_wrote_every_other_reads_at_once(database: Database) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(Navin.open(database.dsn, connections=1)).store for _ in range(20)]
        for number, store in enumerate(stores):
            store.put(NS, "k", {"text": f"tea {number}"})
            assert [other.get(NS, "k").value for other in stores] == [{"text": f"tea {number}"}] * 20  # type: ignore[union-attr]
        assert [len(store.search(NS, query="19")) for store in stores] == [1] * 20


# --- size -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_sixty_thousand_puts_in_one_gather(navin: Navin, database: Database) -> None:
    many = 60_000
    await asyncio.gather(*(navin.store.aput(NS, f"k-{n}", {"n": n}) for n in range(many)))
    assert database.value("select count(*) from navin.items i where i.value->>'n' = substr(i.key, 3)") == many
    found = await asyncio.gather(*(navin.store.aget(NS, f"k-{n}") for n in range(0, many, 7)))
    assert [item.value["n"] for item in found if item] == list(range(0, many, 7))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_seventy_thousand_operations_in_one_batch(navin: Navin, database: Database) -> None:
    # Without statistics of what was just written, a plan that compares each row with each looks as good as any: it never ends.
    stored, absent = range(20_000), range(20_000, 50_000)
    navin.store.batch([PutOp(NS, f"k-{n}", {"n": n}) for n in stored])
    gets: list[Op] = [GetOp(NS, f"k-{n}") for n in stored]
    deletes: list[Op] = [PutOp(NS, f"k-{n}", None) for n in (*stored, *absent)]
    results = navin.store.batch([*gets, *deletes])
    assert [item.value["n"] for item in results[:20_000] if isinstance(item, Item)] == list(stored)
    assert results[20_000:] == [None] * 50_000
    assert database.value("select count(*) from navin.items") == 0
