"""Fusing texts and vectors: scores that don't depend on the look, and a stop that never misses an item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin.engines.builtin.bm25 import Scored
from langgraph_navin.engines.builtin.fusion import TEXT_SHARE, Hit, Ranking

DISTANCES = ["cosine", "l2", "inner_product"]


@dataclass(frozen=True)
class Doc:
    """What the index and the table know of one item."""

    vid: int
    portion: int
    said: float
    distance: float | None
    meets: bool

    @property
    def row(self) -> tuple[Any, ...]:
        # Keys are in another order than versions: the look goes by the one, the ranking by the other.
        return (str(self.vid), "user:u", "ns", f"k{self.vid * 17 % 101:03}")


#: Few values, so that ties and zeros come up.
SAID = st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.0, 2.5, 7.0])
APART = st.none() | st.sampled_from([0.0, 0.1, 0.5, 0.5, 1.0, 1.4, 2.0])
DOCS = st.lists(st.tuples(st.integers(0, 2), SAID, APART, st.booleans()), max_size=25).map(
    lambda rows: [Doc(vid, *row) for vid, row in enumerate(rows)]
)


def scored(docs: list[Doc]) -> Scored:
    """What BM25 said: it knows nothing of filters."""
    found = sorted((-doc.said, doc.vid) for doc in docs if doc.said)
    return Scored(np.array([vid for _, vid in found], np.int64), np.array([-said for said, _ in found], np.float64))


def look_at(ranking: Ranking, docs: list[Doc], look: int, vectors: bool) -> None:
    """As the statements do: per portion the nearest vectors, and whatever of the best texts meets the conditions."""
    ranking.start()
    best = set(ranking.texts.vids[:look].tolist())
    for portion in range(3):
        mine = [doc for doc in docs if doc.portion == portion and doc.meets]
        near = sorted((doc.distance, doc.vid) for doc in mine if doc.distance is not None)[:look] if vectors else []
        nearest = {vid for _, vid in near}
        hits = [
            Hit.of((*doc.row, doc.vid, doc.distance if vectors else None, doc.vid in nearest), len(doc.row))
            for doc in mine
            if doc.vid in nearest or doc.vid in best
        ]
        ranking.add(hits, look)


def looked_until_settled(docs: list[Doc], distance: str | None, wanted: int, first: int, factor: int = 2) -> list[tuple[str, float]]:
    ranking, look = Ranking(scored(docs), distance), first
    look_at(ranking, docs, look, distance is not None)
    while not ranking.settled(wanted, look):
        look *= factor
        assert look < 10_000, "it never settles"
        look_at(ranking, docs, look, distance is not None)
    return [(hit.row[3], hit.score) for hit in ranking.best()[:wanted]]


def everything(docs: list[Doc], distance: str | None) -> list[tuple[str, float]]:
    ranking = Ranking(scored(docs), distance)
    look_at(ranking, docs, 1000, distance is not None)
    return [(hit.row[3], hit.score) for hit in ranking.best()]


@pytest.mark.parametrize("distance", [None, *DISTANCES])
@given(docs=DOCS, wanted=st.integers(0, 12), first=st.integers(1, 6), factor=st.integers(2, 4))
def test_stopping_early_gives_the_page_that_looking_at_everything_gives(
    distance: str | None, docs: list[Doc], wanted: int, first: int, factor: int
) -> None:
    assert looked_until_settled(docs, distance, wanted, first, factor) == everything(docs, distance)[:wanted]


def test_the_nearest_unseen_of_any_portion_counts() -> None:
    near = [Doc(1, 0, 0.0, 0.1, True), Doc(2, 0, 0.0, 0.2, True)]
    far = [Doc(3, 1, 0.0, 0.5, True), Doc(4, 2, 0.0, 2.0, True)]
    assert looked_until_settled([*near, *far], "cosine", 2, 1) == everything(near, "cosine")


def test_an_unseen_equal_may_still_come_first() -> None:
    # By its version the look takes the one, by its key the ranking puts the other first.
    later, sooner = Doc(1, 0, 1.0, None, True), Doc(6, 0, 1.0, None, True)
    assert later.row[3] > sooner.row[3]
    assert looked_until_settled([later, sooner], None, 1, 1) == [(sooner.row[3], 1.0)]


@pytest.mark.parametrize("distance", [None, *DISTANCES])
@given(docs=DOCS, size=st.integers(1, 5), first=st.integers(1, 6))
def test_pages_are_disjoint_and_whole(distance: str | None, docs: list[Doc], size: int, first: int) -> None:
    pages = [looked_until_settled(docs, distance, start + size, first)[start:] for start in range(0, len(docs) + size, size)]
    assert [hit for page in pages for hit in page] == everything(docs, distance)


@pytest.mark.parametrize("distance", [None, *DISTANCES])
@given(docs=DOCS, look=st.integers(1, 6))
def test_a_score_does_not_depend_on_the_look(distance: str | None, docs: list[Doc], look: int) -> None:
    ranking, final = Ranking(scored(docs), distance), dict(everything(docs, distance))
    look_at(ranking, docs, look, distance is not None)
    for hit in ranking.best():
        assert hit.score == final[hit.row[3]]


@pytest.mark.parametrize("distance", DISTANCES)
@given(docs=DOCS)
def test_by_words_and_meaning_every_item_with_either_is_found(distance: str, docs: list[Doc]) -> None:
    assert {key for key, _ in everything(docs, distance)} == {
        doc.row[3] for doc in docs if doc.meets and (doc.said or doc.distance is not None)
    }


@given(DOCS)
def test_by_words_alone_the_score_is_bm25s_own(docs: list[Doc]) -> None:
    said = {doc.row[3]: doc.said for doc in docs if doc.said and doc.meets}
    found = everything(docs, None)
    assert dict(found) == said
    assert [score for _, score in found] == sorted(said.values(), reverse=True)


def test_equal_scores_are_in_the_order_of_namespace_and_key() -> None:
    docs = [Doc(vid, vid % 2, 1.0, 0.5, True) for vid in (3, 7, 2, 0)]
    assert [key for key, _ in everything(docs, "cosine")] == sorted(doc.row[3] for doc in docs)


def test_words_and_meaning_count_their_shares() -> None:
    both, words, near = Doc(1, 0, 4.0, 0.0, True), Doc(2, 0, 2.0, None, True), Doc(3, 0, 0.0, 0.5, True)
    scores = dict(everything([both, words, near], "cosine"))
    assert scores == {both.row[3]: 1.0, words.row[3]: TEXT_SHARE * 0.5, near.row[3]: (1 - TEXT_SHARE) * 0.5}


def test_where_no_word_is_known_meaning_counts_alone() -> None:
    doc = Doc(1, 0, 0.0, 0.25, True)
    assert everything([doc], "cosine") == [(doc.row[3], 0.75)]


@pytest.mark.parametrize(("distance", "apart", "similarity"), [("cosine", 0.25, 0.75), ("l2", 3.0, 0.25), ("inner_product", -2.0, 2.0)])
def test_nearer_is_better_whatever_the_distance(distance: str, apart: float, similarity: float) -> None:
    nearer, farther = Doc(1, 0, 0.0, apart, True), Doc(2, 0, 0.0, apart + 1, True)
    found = everything([farther, nearer], distance)
    assert found[0] == (nearer.row[3], similarity)
    assert found[1][1] < similarity


def test_nothing_found_is_settled() -> None:
    ranking = Ranking(scored([]), "cosine")
    look_at(ranking, [], 10, True)
    assert ranking.settled(5, 10)
    assert ranking.best() == []


def test_a_hit_shows_no_row() -> None:
    assert "S3CRET" not in repr(Hit.of(("S3CRET-VALUE", 1, 0.5, True), 1))
