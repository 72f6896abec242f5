"""The text index stays exact: while it is written, compacted, searched, and after what it held has died."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from databases import Database, fresh
from langgraph_navin.drive import run
from langgraph_navin.effects import dispatch
from langgraph_navin.items import MemoryItem
from langgraph_navin.operations import Forget
from langgraph_navin.testing import DictionaryEngine, FixedClock
from langgraph_navin.testing.bench import NOTES, Bench, Perform, write

WORDS = "green black white tea coffee cocoa milk sugar lemon mint".split()
QUESTIONS = ["tea", "green tea", "milk sugar", "mint", "unheard of"]


@pytest.fixture(scope="module")
def database(pg18: str) -> Iterator[Database]:
    """A database of its own: compaction serves every tenant of one."""
    with fresh(pg18, migrate=True) as made:
        yield made


class Twins:
    """The builtin engine and the reference model, given the same writes."""

    def __init__(self, database: Database, seed: int = 1) -> None:
        model = DictionaryEngine(FixedClock())
        self.database = database
        self.expected = Bench(model, cast(Perform, lambda plan: run(dispatch(model, plan))))
        self.actual = Bench(database.engine, cast(Perform, lambda plan: run(dispatch(database.engine, plan))), self.expected.tenant)
        self.random = random.Random(seed)

    def text(self) -> dict[str, Any]:
        return {"text": " ".join(self.random.choices(WORDS, k=self.random.randint(1, 12)))}

    def change(self, count: int, keys: int = 60) -> None:
        """So many small batches of writes and deletes."""
        for _ in range(count):
            names = self.random.sample(range(keys), k=self.random.randint(1, 3))
            batch = [Forget(NOTES, f"k{n}") if self.random.random() < 0.25 else write(f"k{n}", self.text()) for n in names]
            self.actual.ask(*batch)
            self.expected.ask(*batch)

    def compare(self) -> None:
        for question in QUESTIONS:
            assert scored(self.actual.search(question)) == scored(self.expected.search(question))

    def tick(self, *, thorough: bool = True) -> None:
        self.actual.perform(self.database.engine.upkeep(thorough=thorough))

    def rows(self, table: str) -> int:
        counts = dict(
            self.database.rows(
                """select 'pending', count(*) from navin.pending where tenant_id = %(t)s
                   union all select 'dead', count(*) from navin.dead where tenant_id = %(t)s
                   union all select 'indexed', coalesce(sum(cardinality(vids)), 0) from navin.pending where tenant_id = %(t)s
                   union all select 'texts', count(*) from navin.items where tenant_id = %(t)s and dl > 0""".replace("%(t)s", "%s"),
                *[self.actual.tenant] * 4,
            )
        )
        return int(counts[table])


def scored(found: list[MemoryItem]) -> list[tuple[float, str]]:
    """Scores and keys; equal scores in the order of keys, whatever their last digits."""
    return sorted((-round(item.score or 0.0, 9), item.key) for item in found)


@pytest.fixture
def twins(database: Database) -> Twins:
    return Twins(database)


def test_answers_are_the_same_before_and_after_a_compaction(twins: Twins) -> None:
    for thorough in (False, True, True):
        twins.change(100)
        twins.compare()
        twins.tick(thorough=thorough)
        twins.compare()


def test_many_small_index_rows_become_few(twins: Twins) -> None:
    twins.change(150)
    before = twins.rows("pending")
    twins.tick(thorough=False)
    assert before > 64 > twins.rows("pending")


def test_what_has_died_leaves_the_index_after_a_thorough_round(twins: Twins) -> None:
    twins.change(80)
    assert twins.rows("dead") > 0
    twins.tick()
    assert (twins.rows("dead"), twins.rows("indexed")) == (0, twins.rows("texts"))


def test_a_forgotten_word_stands_nowhere_after_a_thorough_round(twins: Twins) -> None:
    twins.change(20)
    twins.actual.remember("secret", {"text": "pineapple tea"})
    twins.actual.forget("secret")
    twins.tick()
    holding = "select count(*) from navin.pending where tenant_id = %s and idx ? 'pineapple'"
    assert twins.database.value(holding, twins.actual.tenant) == 0


def test_an_emptied_index_is_empty(twins: Twins) -> None:
    twins.change(20)
    for item in twins.expected.listed():
        twins.actual.forget(item.key)
    twins.tick()
    assert [twins.rows(table) for table in ("pending", "dead", "indexed")] == [0, 0, 0]
    assert twins.actual.search("tea") == []


def test_levels_are_compacted_apart(twins: Twins) -> None:
    for classification in ("public", "internal", "confidential"):
        for at in range(5):
            one = write(f"{classification}-{at}", twins.text(), classification=classification)
            twins.actual.ask(one)
            twins.expected.ask(one)
    twins.actual.forget("public-0")
    twins.expected.forget("public-0")
    twins.tick()
    for ceiling in range(3):
        low, model = twins.actual.as_caller(ceiling=ceiling), twins.expected.as_caller(ceiling=ceiling)
        assert scored(low.search("tea milk")) == scored(model.search("tea milk"))


def test_an_expired_text_is_subtracted_before_it_is_swept(twins: Twins) -> None:
    twins.change(20)
    ended = twins.expected.listed()[0]
    expire = "update navin.items set expires_at = clock_timestamp() where tenant_id = %s and id = %s"
    twins.database.rows(expire, twins.actual.tenant, ended.id)
    twins.expected.engine.expire(twins.actual.tenant, ended.id)  # type: ignore[attr-defined]
    twins.compare()
    twins.tick()
    twins.compare()


def test_writers_readers_and_compaction_at_once_stay_exact(twins: Twins) -> None:
    """Each writer has keys of its own, so that the end is known; searches meanwhile never meet an error or a dead text."""
    done = threading.Event()

    def writer(at: int) -> dict[str, dict[str, Any]]:
        mine, chance = {}, random.Random(at)
        for n in range(60):
            key, text = f"w{at}-{chance.randrange(15)}", " ".join(chance.choices(WORDS, k=5))
            mine[key] = {"text": f"{text} round{n}"}
            twins.actual.remember(key, mine[key])
        return mine

    def reader() -> int:
        count = 0
        while not done.is_set():
            found = twins.actual.search("tea")
            assert all("tea" in item.value["text"] for item in found)
            count += 1
        return count

    def compactor() -> int:
        count = 0
        while not done.is_set():
            twins.tick()
            count += 1
        return count

    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(reader), pool.submit(reader), pool.submit(compactor)]
        try:
            written = [end.result(60) for end in [pool.submit(writer, at) for at in range(3)]]
        finally:
            done.set()
        assert all(other.result(60) > 0 for other in others)
    for mine in written:
        twins.expected.ask(*(write(key, value) for key, value in mine.items()))
    twins.compare()
    twins.tick()
    twins.compare()
    assert (twins.rows("dead"), twins.rows("indexed")) == (0, sum(map(len, written)))
