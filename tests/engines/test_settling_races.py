"""Vectors that move while their memories are written, forgotten and searched: each is in one place, and none outlives its text."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from databases import fresh
from langgraph_navin.drive import run
from langgraph_navin.effects import dispatch
from langgraph_navin.engines.builtin.settling import settle
from langgraph_navin.engines.builtin.statements import query
from langgraph_navin.operations import Forget
from langgraph_navin.scopes import UNIT
from langgraph_navin.testing.bench import NOTES, USER, until, write
from settled import SETTLE_AT, Shelf, sign

#: Locks that tests hold to stop the mover at one point.
GATE = 77


@pytest.fixture(params=["pg16", "pg18"])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    with fresh(request.getfixturevalue(request.param), migrate=True) as database:
        yield Shelf(database)


def move(shelf: Shelf, rows: int = 500) -> int | None:
    step = query("settle", {"tenant": shelf.tenant, "partition": USER.text, "rows": rows}, writes=True)
    moved: int | None = run(dispatch(shelf.engine, step))[0][0]
    return moved


def misplaced(shelf: Shelf) -> list[tuple[Any, ...]]:
    """Keys of memories that haven't exactly their own vectors, in one of the tables; and of vectors without a memory."""
    return shelf.database.rows(
        """with v as (select * from navin.vectors union all select * from navin.settled)
           select coalesce(i.key, v.key), i.vectors, count(v.key) from (select * from navin.items where tenant_id = %s) i
           full join (select * from v where tenant_id = %s) v using (tenant_id, partition, ns, key)
           group by 1, 2 having i.vectors is distinct from count(v.key)""",
        shelf.tenant,
        shelf.tenant,
    )


def foreign(shelf: Shelf) -> list[str]:
    """Keys whose vector isn't that of their text."""
    rows = shelf.database.rows(
        """select i.key, i.value ->> 'text', v.embedding::real[] from navin.items i
           join (select * from navin.vectors union all select * from navin.settled) v using (tenant_id, partition, ns, key)
           where tenant_id = %s""",
        shelf.tenant,
    )
    expected = shelf.vectors([text for _, text, _ in rows])
    return [key for (key, _, found), own in zip(rows, expected, strict=True) if found != pytest.approx(own, abs=1e-5)]


# --- one point after the other ----------------------------------------------------------------------------------------


@contextmanager
def stopped(shelf: Shelf, moment: LiteralString, table: str) -> Iterator[Future[int | None]]:
    """A mover that has come to this moment and stands there until the block ends."""
    shelf.database.rows(
        SQL(
            "create function public.stop() returns trigger language plpgsql as "
            "'begin perform pg_advisory_xact_lock_shared({gate}); return new; end'; "
            "create trigger stop {moment} on navin.{table} for each statement when (current_user = 'navin_maintenance') "
            "execute function public.stop()"
        ).format(gate=Literal(GATE), moment=SQL(moment), table=Identifier(table))
    )
    with psycopg.connect(shelf.database.dsn, autocommit=True) as gate, ThreadPoolExecutor(1) as pool:
        gate.execute("select pg_advisory_lock(%s)", (GATE,))
        moving = pool.submit(move, shelf)
        try:
            until(lambda: waiting(shelf) == 1)
            yield moving
        finally:
            gate.execute("select pg_advisory_unlock(%s)", (GATE,))


def waiting(shelf: Shelf) -> int:
    found: int = shelf.database.value(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return found


def test_nobody_waits_while_the_mover_fills_the_index(shelf: Shelf) -> None:
    shelf.fill(10)
    with stopped(shelf, "after insert", "settled") as moving:
        shelf.remember("k1", {"text": sign(901)})
        shelf.forget("k2")
        shelf.remember("new", {"text": sign(902)})
        shelf.ask(Forget(NOTES, "k3"), write("k4", {"text": sign(904)}))
        assert not moving.done()
        assert misplaced(shelf) == []
    assert moving.result(30) == 10 - 4
    assert {key for _, key, _ in shelf.kept()["fresh"]} == {"k1", "k4", "new"}
    assert (misplaced(shelf), foreign(shelf)) == ([], [])


@pytest.mark.parametrize("changed", ["written", "forgotten", "swept"])
def test_who_meets_a_vector_on_the_move_finds_it_where_it_went(shelf: Shelf, changed: str) -> None:
    shelf.fill(10)
    if changed == "swept":
        shelf.database.rows("update navin.items set expires_at = clock_timestamp() where key = 'k1'")
    change = {
        "written": lambda: shelf.remember("k1", {"text": sign(901)}),
        "forgotten": lambda: shelf.forget("k1"),
        "swept": lambda: shelf.perform(shelf.database.engine.sweep()),
    }[changed]
    with ThreadPoolExecutor(1) as pool:
        with stopped(shelf, "after delete", "vectors") as moving:
            changing = pool.submit(change)
            # The one for the gate, the other for the row that the mover has deleted.
            until(lambda: waiting(shelf) == 2)
        assert moving.result(30) == 10
        changing.result(30)
    assert {key for _, key, _ in shelf.kept()["fresh"]} == ({"k1"} if changed == "written" else set())
    assert len(shelf.kept()["settled"]) == 9
    assert (misplaced(shelf), foreign(shelf)) == ([], [])


def test_what_is_being_written_is_left_to_its_writer(shelf: Shelf) -> None:
    shelf.fill(10)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(shelf.database.dsn) as writer:
        writer.execute("select navin.enter(%s, %s, %s)", (shelf.tenant, USER.text, UNIT.join(("a", "a", "0", ""))))
        writer.execute("delete from navin.items where key = 'k1'")
        assert pool.submit(move, shelf).result(30) == 9
        writer.rollback()
    assert {key for _, key, _ in shelf.kept()["fresh"]} == {"k1"}
    assert misplaced(shelf) == []


def test_movers_of_one_partition_take_turns(shelf: Shelf) -> None:
    shelf.fill(10)
    with stopped(shelf, "after insert", "settled"):
        assert move(shelf) is None
    assert shelf.counts() == {"fresh": 0, "settled": 10}


# --- all at once ------------------------------------------------------------------------------------------------------

KEYS = 60


def writer(shelf: Shelf, seed: int) -> None:
    """Writes and forgets the same keys as everybody else."""
    chance = random.Random(seed)
    for _ in range(60):
        keys = chance.sample(range(KEYS), 3)
        shelf.ask(
            *(
                Forget(NOTES, f"k{n}") if chance.random() < 0.3 else write(f"k{n}", {"text": sign(chance.randrange(1_000, 10_000)), "n": n})
                for n in keys
            )
        )


def test_movers_writers_and_readers_on_the_same_keys_leave_each_vector_in_one_place(shelf: Shelf) -> None:
    shelf.fill(SETTLE_AT)
    shelf.settle()
    done = threading.Event()

    def mover() -> int:
        rounds = 0
        while not done.is_set():
            # Few at a time, so that it and the writers meet often; by turns the whole plan.
            move(shelf, 7)
            run(dispatch(shelf.engine, settle(SETTLE_AT // 2, thorough=rounds % 10 == 0)))
            rounds += 1
        return rounds

    def reader() -> int:
        rounds, mine = 0, shelf.again()
        while not done.is_set():
            found = mine.search(sign(KEYS + rounds % 100), limit=5)
            # Never written after the start: whatever moves, it is there, once.
            assert found[0].key == f"k{KEYS + rounds % 100}"
            assert len({item.key for item in found}) == len(found)
            assert all(item.score is not None for item in found)
            rounds += 1
        return rounds

    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(one) for one in (mover, mover, reader, reader)]
        try:
            for end in [pool.submit(writer, shelf.again(), seed) for seed in range(4)]:
                end.result(60)
        finally:
            done.set()
        assert all(other.result(60) > 3 for other in others)
    assert (misplaced(shelf), foreign(shelf)) == ([], [])
    shelf.settle()
    assert (misplaced(shelf), foreign(shelf)) == ([], [])
    assert shelf.counts()["fresh"] == 0
