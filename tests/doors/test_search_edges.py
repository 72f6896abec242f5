"""Searches at the edges: vectors without direction, odd labels, long lists, repeated paths."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from langgraph.store.base import PutOp

from databases import Database
from langgraph_navin import Navin

NS = ("user", "u-1")


def vowels(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "aeiou"] for text in texts]


@pytest.fixture
def navin(door_database: Database, tenant: str) -> Iterator[Navin]:
    with Navin.open(door_database.dsn, tenant=tenant, index={"dims": 5, "embed": vowels, "fields": ["text", "text"]}) as navin:
        yield navin


def test_a_vector_without_direction_is_like_nothing(navin: Navin) -> None:
    for number in range(120):
        navin.store.put(NS, f"k-{number}", {"text": "xyz" if number % 3 else "tea"})
    pages = [navin.store.search(NS, query="tea", limit=40, offset=at) for at in (0, 40, 80)]
    scores = [hit.score or 0.0 for page in pages for hit in page]
    assert len({hit.key for page in pages for hit in page}) == 120
    assert all(map(math.isfinite, scores))
    assert scores == sorted(scores, reverse=True)
    assert {hit.value["text"] for hit in pages[0]} == {"tea"}


@pytest.mark.parametrize("label", ["\U0010ffff", "\U0010ffff" * 3, "\ud7ff", "\ue000", " ", "!"])
def test_any_label_stands_under_its_prefix(navin: Navin, label: str) -> None:
    navin.store.put((*NS, label), "k", {"text": "tea"})
    for found in (navin.store.search(NS), navin.store.search((*NS, label)), navin.store.search(NS, query="tea")):
        assert [item.namespace for item in found] == [(*NS, label)]
    assert navin.store.list_namespaces(prefix=NS) == [(*NS, label)]


def test_long_namespaces_whose_head_ends_in_the_last_character(navin: Navin) -> None:
    long = ("user", "u-1", "\U0010ffff" * 500)
    navin.store.put((*long, "a"), "k", {"text": "tea"})
    navin.store.put(("user", "u-1", "\U0010ffff" * 499 + "x"), "k", {"text": "tea"})
    assert [item.namespace for item in navin.store.search(long)] == [(*long, "a")]


def test_a_list_of_any_length_can_be_asked_for(navin: Navin) -> None:
    navin.store.put(NS, "k", {"text": "tea", "n": 39_999})
    assert len(navin.store.search(NS, filter={"n": {"$in": list(range(40_000))}})) == 1
    assert navin.store.search(NS, filter={"n": {"$in": list(range(39_999))}}) == []


def test_a_path_named_twice_is_one(navin: Navin) -> None:
    navin.store.put(NS, "k", {"text": "tea", "tags": ["a", "e"]}, index=["tags[*]", "tags[*]", "x" * 2_000, "text"])
    assert navin.store.search(NS, query="tea")[0].score is not None


def test_a_batch_larger_than_one_json_value_may_be(navin: Navin) -> None:
    """jsonb ends at 256 MB; a batch doesn't."""
    value = {"text": "e" * 60_000_000}
    navin.store.batch([PutOp(NS, f"k-{n}", value, index=False) for n in range(5)])
    assert len(navin.store.search(NS, limit=10, filter={"n": {"$ne": 1}})) == 5
