"""The quick ways of listing answer what the general ones answer, however much there is and whatever it is called."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from langgraph.store.base import PutOp

from databases import Database, fresh
from langgraph_navin import Navin
from langgraph_navin.engines.builtin import reads
from langgraph_navin.store import NavinStore

OWNER = ("user", "u-1")
#: Labels whose order or length is special: below the separator, a prefix of another, the last character there is, a hashed one.
LABELS = ["a", "a b", "a\tb", "b", "bb", "A", "é", "\U0010ffff", "x" * 700, "x" * 700 + "y", "z" * 950, "z" * 940, "%", "_"]
FILTERS: list[dict[str, Any] | None] = [
    None,
    {},
    {"cat": "c1"},
    {"cat": "c1", "n": 3},
    {"n": 3.0},
    {"flag": True},
    {"flag": 1},
    {"nothing": None},
    {"missing": None},
    {"inner": {"deep": {"n": 1}}},
    {"inner": {}},
    {"inner": {"deep": 1}},
    {"tags": "a"},
    {"tags": ["a", "b"]},
    {"cat": {"$ne": "c1"}},
    {"$and": [{"cat": "c1"}, {"cat": "c2"}]},
    {"$and": [{"cat": "c1"}, {"inner": {"deep": {"n": 1}}}]},
]


def value(chance: random.Random, n: int) -> dict[str, Any]:
    inner: Any = chance.choice([{"deep": {"n": n % 3}}, {"deep": 1}, {}, [1], "text"])
    return {"cat": f"c{n % 5}", "n": n % 7, "flag": chance.choice([True, False, 1]), "tags": ["a", "b"], "inner": inner, "nothing": None}


@pytest.fixture(scope="module", params=[60, 2_500], ids=["few rows", "many rows"])
def filled(request: pytest.FixtureRequest, migrated18: Database) -> Iterator[Navin]:
    chance = random.Random(request.param)
    with Navin.open(migrated18.dsn, tenant=f"listings-{request.param}", labels="any") as navin:
        navin.store.put((*OWNER, "\U0010ffff"), "last", {"cat": "c1"}, index=False)
        for start in range(0, request.param, 20):
            places = [(*OWNER, *chance.choices(LABELS, k=chance.randrange(3))) for _ in range(20)]
            puts = [PutOp(place, f"k-{start + n}", value(chance, start + n), index=False) for n, place in enumerate(places)]
            puts += [PutOp((*OWNER, "gone", f"{start}"), "k", {"n": 1}, index=False, ttl=60)]
            navin.store.batch(puts)
        migrated18.rows(
            "update navin.items set expires_at = now() - interval '1 s' where tenant_id = %s and ttl_s is not null", navin_tenant(navin)
        )
        yield navin


def navin_tenant(navin: Navin) -> str:
    return navin._settings.tenant


def both(monkeypatch: pytest.MonkeyPatch, ask: Any) -> tuple[Any, Any]:
    """The answer of the quick way, and of the general one."""
    quick = ask()
    with monkeypatch.context() as patch:
        patch.setattr(reads, "bounds", lambda prefix: None)
        return quick, ask()


def pages(store: NavinStore, prefix: tuple[str, ...], filter: dict[str, Any] | None) -> list[list[tuple[Any, ...]]]:
    asked = [(10, 0), (3, 7), (1_000, 0), (5, 40), (0, 0)]
    found = [store.search(prefix, filter=filter, limit=limit, offset=offset) for limit, offset in asked]
    return [[(item.namespace, item.key, item.value, item.updated_at) for item in page] for page in found]


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_newest_first(filled: Navin, filter: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in (
        OWNER,
        (*OWNER, "a"),
        (*OWNER, "\U0010ffff"),
        (*OWNER, "x" * 700),
        (*OWNER, "z" * 950),
        (*OWNER, "gone"),
        (*OWNER, "none"),
    ):
        quick, general = both(monkeypatch, lambda prefix=prefix: pages(filled.store, prefix, filter))
        assert quick == general


def test_most_filters_take_the_quick_way() -> None:
    """Without this, the comparison above could be one of the general way with itself."""
    from langgraph_navin.engines.builtin.conditions import contained
    from langgraph_navin.filters import parse

    quick = [filter for filter in FILTERS if contained(parse(filter)) is not None]
    assert quick == [*FILTERS[:6], *FILTERS[6:13], FILTERS[16]]


@pytest.mark.parametrize("depth", [None, 1, 2, 3, 4])
def test_namespaces(filled: Navin, depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in (OWNER, (*OWNER, "a"), (*OWNER, "x" * 700), (*OWNER, "gone"), ("user", "nobody")):
        for limit, offset in ((1_000, 0), (5, 0), (5, 12)):
            quick, general = both(
                monkeypatch,
                lambda prefix=prefix, limit=limit, offset=offset: filled.store.list_namespaces(
                    prefix=prefix, max_depth=depth, limit=limit, offset=offset
                ),
            )
            assert quick == general


def test_a_whole_scope_is_listed_from_one_end_to_the_other(filled: Navin) -> None:
    """Every namespace that holds something, in the order of its labels."""
    names = filled.store.list_namespaces(limit=10_000)
    assert names == sorted(names, key="\x1f".join)
    assert not any("gone" in name for name in names)
    assert (*OWNER, "\U0010ffff") in names


QUESTIONS: dict[str, LiteralString] = {
    "get_one": "select count(*) from navin.get_one(%(t)s, 'user:u-1', 0, 3, null, 'user:u-1', %(ns)s, 'k-77', false)",
    "get_many": "select count(*) from navin.get_many(%(t)s, 'user:u-1', 0, 3, null, '{user:u-1}', array[%(ns)s], '{k-77}')",
    "newest of all": "select count(*) from navin.newest(%(t)s, 'user:u-1', 0, 3, null, 'user:u-1', %(ns)s, %(end)s, true, null, 9, 0)",
    "newest of many": "select count(*) from navin.newest(%(t)s, 'user:u-1', 0, 3, null, 'user:u-1', %(ns)s, %(end)s, false, null, 10, 0)",
    "namespaces": "select count(*) from navin.namespaces(%(t)s, 'user:u-1', 0, 3, null, 'user:u-1', %(ns)s, %(end)s, 9, 10, 0)",
}


@pytest.fixture(scope="module")
def unknown(pg18: str) -> Iterator[Database]:
    """A database that was filled and of which no statistics were ever made."""
    with fresh(pg18, migrate=True) as database:
        database.rows("alter table navin.items set (autovacuum_enabled = off)")
        with Navin.open(database.dsn, tenant="t") as navin:
            for start in range(0, 6_000, 1_000):
                navin.store.batch([PutOp((*OWNER, "n"), f"k-{start + n}", {"n": n}, index=False) for n in range(1_000)])
        yield database


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_database_without_statistics_is_read_by_its_keys(unknown: Database, question: str) -> None:
    """Nothing reads all of a partition before anybody has run analyze, or later with the plan that was made before."""
    names = {"t": "t", "ns": "user\x1fu-1\x1fn\x1f", "end": "user\x1fu-1\x1fn "}
    with psycopg.connect(unknown.dsn) as connection:
        # From the sixth time on a plan may be kept for every value.
        for _ in range(8):
            before = read_so_far(connection)
            connection.execute(QUESTIONS[question], names)
            assert read_so_far(connection) - before < 1_100
            connection.rollback()


def read_so_far(connection: psycopg.Connection[Any]) -> int:
    """Rows of items that this session has read and not yet reported."""
    row = connection.execute("select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'items'").fetchone()
    assert row is not None
    return int(row[0])
