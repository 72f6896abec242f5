"""Vectors of a large partition settle in an index of their own, and searches find by it what comparing everything finds."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from databases import fresh
from langgraph_navin import Navin, cli
from langgraph_navin.drive import arun
from langgraph_navin.effects import dispatch
from langgraph_navin.engines.builtin import nearest, settling
from langgraph_navin.engines.builtin.bm25 import Scored
from langgraph_navin.engines.builtin.fusion import Hit, Ranking
from langgraph_navin.engines.builtin.settling import Large
from langgraph_navin.items import MemoryItem
from langgraph_navin.operations import Call, Search
from langgraph_navin.scopes import UNIT
from langgraph_navin.testing.bench import NOTES, OTHER, USER, reach
from settled import COUNT, SETTLE_AT, Shelf, sign

QUESTIONS = [sign(n) for n in range(5_000, 5_020)]


@pytest.fixture(scope="module", params=["pg16", "pg18"])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """A large partition that has settled, and a small one beside it. Tests leave it as it is."""
    with fresh(request.getfixturevalue(request.param), migrate=True) as database:
        made = Shelf(database)
        made.fill()
        made.fill(50, OTHER)
        assert made.settle() == {"settled": COUNT, "indexed": 1, "unindexed": 0}
        yield made


@pytest.fixture
def small(pg18: str) -> Iterator[Shelf]:
    """A partition just large enough, not settled, in a database of its own."""
    with fresh(pg18, migrate=True) as database:
        made = Shelf(database)
        made.fill(SETTLE_AT)
        yield made


def indexes(shelf: Shelf) -> list[tuple[Any, ...]]:
    return shelf.database.rows(
        "select c.relname, pg_get_indexdef(c.oid) from pg_index x join pg_class c on c.oid = x.indexrelid join pg_am a on a.oid = c.relam "
        "where x.indrelid = 'navin.settled'::regclass and a.amname = 'hnsw' and x.indisvalid order by 1"
    )


# --- where vectors are ------------------------------------------------------------------------------------------------


def test_a_large_partition_settles_and_a_small_one_stays(shelf: Shelf) -> None:
    kept = shelf.kept()
    assert {partition for partition, _, _ in kept["settled"]} == {USER.text}
    assert {partition for partition, _, _ in kept["fresh"]} == {OTHER.text}
    assert shelf.counts() == {"fresh": 50, "settled": COUNT}
    ((name, definition),) = indexes(shelf)
    assert re.search(r"USING hnsw \(\(\(embedding\)::vector\(64\)\) vector_cosine_ops\) WHERE", definition)
    assert definition.count(shelf.tenant) == definition.count(USER.text) == 1
    noted = shelf.database.rows("select tenant_id, partition, dims, distance, name, vectors, ready from navin.ann")
    assert noted == [(shelf.tenant, USER.text, 64, "cosine", name, COUNT, True)]


def test_settling_again_changes_nothing(shelf: Shelf) -> None:
    before = indexes(shelf)
    assert shelf.settle() == {"settled": 0, "indexed": 1, "unindexed": 0}
    assert indexes(shelf) == before


def test_the_servers_plan_walks_the_index_under_row_level_security(shelf: Shelf) -> None:
    plan = shelf.plan(QUESTIONS[0])
    ((name, _),) = indexes(shelf)
    assert f"Index Scan using {name} on settled" in plan
    assert "Order By: ((embedding)::vector(64) <=>" in plan


@pytest.mark.parametrize(
    "settings", [{}, {"tenant": "other", "parts": USER.text}, {"parts": USER.text}, {"tenant": "", "parts": OTHER.text}]
)
def test_a_statement_without_conditions_sees_no_row_of_others(shelf: Shelf, settings: dict[str, str]) -> None:
    with psycopg.connect(shelf.database.dsn) as connection:
        connection.execute("set local role navin_app")
        for name, value in settings.items():
            connection.execute("select set_config(%s, %s, true)", (f"navin.{name}", value or shelf.tenant))
        for statement in ("select from navin.settled", "select from navin.ann", "delete from navin.settled"):
            assert connection.execute(statement).rowcount == 0
        connection.rollback()


# --- what searches find -----------------------------------------------------------------------------------------------


def test_a_walk_finds_what_comparing_finds(shelf: Shelf) -> None:
    shared = sum(len(set(shelf.walked(one, limit=10)) & set(shelf.again().hits(one, limit=10))) for one in QUESTIONS)
    assert shared >= 0.95 * 10 * len(QUESTIONS)


async def test_both_colours_walk_alike(shelf: Shelf) -> None:
    found = shelf.walked(QUESTIONS[2], limit=10)
    call = Call(Search((), QUESTIONS[2], limit=10, refresh=False), reach())
    (items,) = await arun(dispatch(shelf.engine, shelf.engine.steps(shelf.access, [call])))
    assert isinstance(items, list)
    assert [item.key for item in items if isinstance(item, MemoryItem)] == found


def test_scores_are_those_of_comparing(shelf: Shelf) -> None:
    exact = {item.key: item.score for item in shelf.again().search(QUESTIONS[0], limit=50)}
    for item in shelf.search(QUESTIONS[0], limit=10):
        assert item.score == pytest.approx(exact[item.key])


def test_pages_continue_one_walk(shelf: Shelf) -> None:
    whole = shelf.walked(QUESTIONS[1], limit=40)
    pages = [shelf.walked(QUESTIONS[1], limit=8, offset=start) for start in range(0, 40, 8)]
    assert [key for page in pages for key in page] == whole


@pytest.mark.parametrize("filter", [{"n": {"$lt": COUNT // 2}}, {"n": {"$gte": COUNT - 20}}, {"n": 7}, {"n": -1}])
def test_under_a_filter_a_search_finds_all_that_comparing_finds(shelf: Shelf, filter: dict[str, Any]) -> None:
    for question in QUESTIONS[:5]:
        shelf.search(question, limit=1)
        exact = shelf.again().hits(question, filter=filter, limit=10)
        assert len(set(shelf.hits(question, filter=filter, limit=10)) & set(exact)) >= 0.9 * len(exact)


def test_what_a_walk_may_have_missed_is_compared(shelf: Shelf) -> None:
    shelf.search(QUESTIONS[0], limit=1)
    shelf.heard.clear()
    found = shelf.hits(QUESTIONS[0], filter={"n": {"$gte": COUNT - 20}}, limit=20)
    assert [one.once for one in shelf.heard if "near" in one.params] == [True, False]
    assert found == shelf.again().hits(QUESTIONS[0], filter={"n": {"$gte": COUNT - 20}}, limit=20)
    assert len(found) == 20


def test_a_long_look_compares_at_once(shelf: Shelf) -> None:
    shelf.search(QUESTIONS[0], limit=1)
    shelf.heard.clear()
    assert len(shelf.hits(QUESTIONS[0], limit=COUNT)) == COUNT
    assert not any(one.once for one in shelf.heard)


def test_several_partitions_are_compared(shelf: Shelf) -> None:
    found = shelf.hits(sign(3), at=reach(USER, OTHER), limit=2)
    assert found == ["k3", "k3"]


def test_another_way_to_compare_needs_no_index(shelf: Shelf) -> None:
    other = Shelf(shelf.database, shelf.tenant, distance="l2")
    for _ in range(2):
        assert other.hits(sign(77), limit=1) == ["k77"]
    assert not any(one.once for one in other.heard)


# --- what changes -----------------------------------------------------------------------------------------------------


def test_changes_are_seen_at_once_and_leave_nothing_behind(small: Shelf) -> None:
    small.fill(COUNT, first=SETTLE_AT)
    small.settle()
    moved, gone, ended, new = sign(9_001), sign(2), sign(3), sign(9_002)
    small.remember("k1", {"text": moved})
    small.remember("new", {"text": new})
    small.forget("k2")
    small.database.rows("update navin.items set expires_at = clock_timestamp() where key = 'k3'")
    assert small.walked(moved, limit=1) == ["k1"]
    assert small.walked(new, limit=1) == ["new"]
    assert small.walked(sign(1), limit=1) != ["k1"]
    assert not {"k2", "k3"} & {*small.walked(gone, limit=30), *small.walked(ended, limit=30)}
    small.perform(small.database.engine.sweep())
    assert {key for _, key, _ in small.kept()["fresh"]} == {"k1", "new"}
    assert not {key for _, key, _ in small.kept()["settled"]} & {"k1", "k2", "k3", "new"}
    assert small.settle()["settled"] == 2
    assert small.walked(moved, limit=1) == ["k1"]
    assert small.counts() == {"fresh": 0, "settled": SETTLE_AT + COUNT - 1}


def test_a_round_in_between_moves_what_has_gathered(small: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PORTION", 20)
    assert small.settle(thorough=False) == {"settled": 0}
    small.settle()
    small.fill(19, first=1_000)
    assert small.settle(thorough=False) == {"settled": 0}
    small.fill(30, first=1_019)
    assert small.settle(thorough=False) == {"settled": 49}
    assert small.counts() == {"fresh": 0, "settled": SETTLE_AT + 49}


def test_several_vectors_of_an_item_are_one_hit(pg18: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "STEP", 1)
    with fresh(pg18, migrate=True) as database:
        shelf = Shelf(database, fields=("text[*]",))
        for n in range(100):
            shelf.remember(f"k{n}", {"text": [sign(n), sign(n + 1_000), sign(n + 2_000)]})
        assert shelf.settle(300)["settled"] == 300
        shelf.remember("k7", {"text": [sign(3_000), sign(7)]})
        for question in (sign(3_000), sign(7), sign(1_050)):
            assert shelf.walked(question, limit=8) == shelf.again().hits(question, limit=8)
        assert len(set(shelf.walked(sign(1), limit=30))) == 30


@pytest.mark.parametrize(
    ("distance", "dims", "operators"),
    [("l2", 16, "vector_l2_ops"), ("inner_product", 16, "vector_ip_ops"), ("cosine", 2_001, "halfvec_cosine_ops"), ("l2", 4_001, None)],
)
def test_each_way_to_compare_has_its_index(
    pg18: str, monkeypatch: pytest.MonkeyPatch, distance: str, dims: int, operators: str | None
) -> None:
    monkeypatch.setattr(nearest, "STEP", 1)
    with fresh(pg18, migrate=True) as database:
        shelf = Shelf(database, dims=dims, distance=distance)
        shelf.fill(80)
        shelf.settle(80)
        assert [operators for _, text in indexes(shelf) if f" {operators})" in text] == ([operators] if operators else [])
        for question in (sign(5), sign(500)):
            found = shelf.walked(question, limit=10) if operators else shelf.hits(question, limit=10)
            assert found == shelf.again().hits(question, limit=10)


# --- the indexes' own life --------------------------------------------------------------------------------------------


def test_an_index_goes_when_half_of_its_vectors_have_gone_and_the_rest_is_still_found(small: Shelf) -> None:
    small.settle()
    for n in range(SETTLE_AT // 2):
        small.forget(f"k{n}")
    assert small.settle()["indexed"] == 1
    small.forget(f"k{SETTLE_AT // 2}")
    assert small.settle() == {"settled": 0, "indexed": 0, "unindexed": 0}
    assert indexes(small) == small.database.rows("select * from navin.ann") == []
    assert small.hits(sign(300), limit=1) == ["k300"]
    small.fill(SETTLE_AT // 2 + 1)
    assert small.settle() == {"settled": SETTLE_AT // 2 + 1, "indexed": 1, "unindexed": 0}


def test_a_broken_index_is_made_again(small: Shelf) -> None:
    small.settle()
    ((name, _),) = indexes(small)
    ((before,),) = small.database.rows("select to_regclass('navin.' || %s)::oid", name)
    small.database.rows("update pg_index set indisvalid = false where indexrelid = %s", before)
    assert small.settle()["indexed"] == 1
    ((after,),) = small.database.rows("select to_regclass('navin.' || %s)::oid", name)
    assert after != before
    assert [name for name, _ in indexes(small)] == [name]


def test_where_the_application_compares_in_another_way_the_index_follows(small: Shelf) -> None:
    small.settle()
    Shelf(small.database, small.tenant, distance="l2").remember("one more", {"text": "!"})
    small.settle()
    ((_, definition),) = indexes(small)
    assert "vector_l2_ops" in definition


def test_the_largest_partitions_have_the_indexes(small: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MOST", 1)
    small.settle()
    small.fill(SETTLE_AT + 100, OTHER)
    for expected in (USER, OTHER):
        small.settle()
        assert small.database.rows("select partition from navin.ann") == [(expected.text,)]
        small.fill(SETTLE_AT, OTHER, first=5_000)


def test_hostile_names_are_values(small: Shelf) -> None:
    hostile = Shelf(small.database, tenant="o'hara \\ 100%s {x} \"; drop table navin.items")
    hostile.fill(SETTLE_AT)
    assert hostile.settle()["indexed"] == 2
    assert hostile.hits(sign(9), limit=1) == ["k9"]
    assert Large("a", "b", 8, "l2", 1).name != Large("a", "b", 8, "cosine", 1).name


# --- without the right to make an index -------------------------------------------------------------------------------


@pytest.fixture
def servant(small: Shelf) -> Iterator[str]:
    """A DSN of a role that may maintain but owns nothing."""
    small.database.rows("create role settling_servant login password 'pw' in role navin_app, navin_maintenance")
    yield f"{small.database.dsn} user=settling_servant password=pw"
    small.database.rows("drop role settling_servant")


def test_who_owns_nothing_searches_exactly_and_is_told_once(
    small: Shelf, servant: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settling, "SETTLE_AT", SETTLE_AT)
    caplog.set_level(logging.INFO, "langgraph_navin")
    with Navin.open(servant) as navin:
        for _ in range(2):
            assert navin.maintenance.tick() == {"swept": 0, "compacted": 0, "settled": 0, "indexed": 0, "unindexed": 1}
    assert [record.levelname for record in caplog.records if "1 large partitions" in record.getMessage()] == ["INFO"]
    monkeypatch.setenv("NAVIN_DSN", servant)
    assert cli.main(["maintain"]) == 0
    assert '"unindexed": 1, "hint": "' in capsys.readouterr().out
    assert small.hits(sign(9), limit=1) == ["k9"]
    assert indexes(small) == []


def test_who_owns_nothing_moves_vectors_into_the_owners_index(small: Shelf, servant: str) -> None:
    small.settle()
    small.remember("new", {"text": "!"})
    with Navin.open(servant) as navin:
        assert navin.maintenance.tick()["settled"] == 1


# --- when a search may stop -------------------------------------------------------------------------------------------


def test_a_told_horizon_bounds_the_unseen() -> None:
    hit = Hit((1, USER.text, UNIT.join(NOTES), "k"), 1, 0.2, near=False)
    ranking = Ranking(Scored(np.array([], np.int64), np.array([], np.float64)), "cosine")
    for horizon, settled in ((0.5, True), (0.1, False), (float("nan"), True)):
        ranking.start()
        ranking.add([hit], 50, horizon)
        assert ranking.settled(1, 50) is settled
        assert ranking.settled(2, 50) is False
