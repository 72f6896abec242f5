"""BM25 against a naive reference and against `bm25s`, with and without dead versions."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter

import bm25s  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin.engines.builtin.bm25 import K1, Scored, score, unpack
from langgraph_navin.engines.builtin.lexemes import counted

Corpus = dict[int, list[str]]
WORDS = [f"w{n}" for n in range(300)]


def sent(values: list[int]) -> bytes:
    """A `bigint[]` as PostgreSQL's `array_send` writes it."""
    if not values:
        return struct.pack(">iii", 0, 0, 20)
    return struct.pack(">iiiii", 1, 0, 20, len(values), 1) + b"".join(struct.pack(">iq", 8, value) for value in values)


def packed(corpus: Corpus, lexeme: str) -> list[int]:
    return [vid << 24 | len(words) << 10 | words.count(lexeme) for vid, words in sorted(corpus.items()) if lexeme in words]


def searched(query: list[str], *parts: Corpus, dead: dict[int, int] | None = None, limit: int | None = None) -> Scored:
    """Score an index of these parts, as the rows of one statement."""
    postings = [(lexeme, sent(packed(part, lexeme))) for part in parts for lexeme in query]
    counts = [(len(part), sum(map(len, part.values()))) for part in parts]
    return score(postings, counts, (dead or {}).items(), limit=limit)


def naive(query: list[str], corpus: Corpus) -> list[tuple[int, float]]:
    """BM25 word by word, straight from its definition."""
    scores: dict[int, float] = {}
    for lexeme in set(query):
        df = sum(lexeme in words for words in corpus.values())
        for vid, words in corpus.items():
            tf = Counter(words)[lexeme]
            if tf:
                average = sum(map(len, corpus.values())) / len(corpus)
                idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
                scores[vid] = scores.get(vid, 0.0) + idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(words) / average))
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def same(found: Scored, expected: list[tuple[int, float]]) -> None:
    assert dict(zip(found.vids.tolist(), found.scores.tolist(), strict=True)) == pytest.approx(dict(expected), abs=1e-9)
    pairs = list(zip((-found.scores).tolist(), found.vids.tolist(), strict=True))
    assert pairs == sorted(pairs)


def made(seed: int, size: int, first: int = 1) -> Corpus:
    dice = random.Random(seed)
    weights = [1 / (n + 1) for n in range(len(WORDS))]
    return {first + n: dice.choices(WORDS, weights, k=dice.randint(1, 60)) for n in range(size)}


def test_unpacks_what_array_send_gives() -> None:
    values = [1, -1, 2**62, 0]
    assert unpack(sent(values)).tolist() == values
    assert unpack(sent([])).dtype == unpack(sent(values)).dtype == np.int64
    assert len(unpack(sent([]))) == 0


OTHER_TYPE = sent([1]).replace(b"\x14", b"\x17", 1)


@pytest.mark.parametrize("data", [b"", sent([1])[:-1], sent([1]) + b"\x00", OTHER_TYPE, struct.pack(">iii", 1, 0, 20)])
def test_refuses_other_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a binary bigint\[\]"):
        unpack(data)


def test_scores_one_posting_by_hand() -> None:
    found = searched(["a"], {7: ["a", "b"], 9: ["b", "b"]})
    assert found.vids.tolist() == [7]
    assert found.scores.tolist() == pytest.approx([math.log(1 + 1.5 / 1.5) * 2.2 / 2.2])


def test_agrees_with_bm25s() -> None:
    corpus = made(1, 400)
    vocabulary = {word: n for n, word in enumerate(WORDS)}
    judge = bm25s.BM25(method="lucene", k1=1.2, b=0.75, dtype="float64")
    judge.index(([[vocabulary[word] for word in words] for words in corpus.values()], vocabulary), show_progress=False)
    dice = random.Random(2)
    for _ in range(40):
        query = dice.sample(WORDS, 6)
        expected = judge.get_scores_from_ids([vocabulary[word] for word in query])
        same(searched(query, corpus), [(vid, value * (K1 + 1)) for vid, value in zip(corpus, expected, strict=True) if value > 0])


def test_counts_of_the_lexer_are_what_an_index_holds() -> None:
    texts = ["Jean lives in Lyon.", "Lyon, Lyon and Paris", "Paris v1.2"]
    documents = [counted([text]) for text in texts]
    held = [vid << 24 | length << 10 | counts["lyon"] for vid, (length, counts) in enumerate(documents) if "lyon" in counts]
    words = {vid: list(Counter(counts).elements()) for vid, (_, counts) in enumerate(documents)}
    same(score([("lyon", sent(held))], [(1, length) for length, _ in documents], []), naive(["lyon"], words))


def test_dead_versions_count_for_nothing() -> None:
    corpus = made(3, 200)
    dead = {vid: len(words) for vid, words in corpus.items() if vid % 3 == 0}
    living = {vid: words for vid, words in corpus.items() if vid not in dead}
    for query in (["w0", "w5"], ["w1", "w40", "w200"], ["w299"]):
        same(searched(query, corpus, dead=dead), naive(query, living))


def test_an_index_without_living_versions_finds_nothing() -> None:
    assert len(searched(["a"], {1: ["a"]}, dead={1: 1})) == 0
    assert len(searched(["a"], {})) == 0
    assert len(score([], [(3, 10)], [])) == 0


def test_parts_make_one_index() -> None:
    old, new = made(4, 150), made(5, 50, first=1_000_000_000)
    same(searched(["w0", "w3", "w77"], old, new, {}), naive(["w0", "w3", "w77"], old | new))


def test_a_lexeme_asked_twice_counts_once() -> None:
    corpus = made(6, 50)
    same(searched(["w1", "w1", "w2"], corpus), naive(["w1", "w2"], corpus))


def test_equal_scores_are_ordered_by_version() -> None:
    corpus: Corpus = {vid: ["a", "b"] for vid in (900_000_000, 5, 3, 70)}
    assert searched(["b", "a"], corpus).vids.tolist() == [3, 5, 70, 900_000_000]


@pytest.mark.parametrize("limit", [0, 1, 5, 40, 10_000])
def test_a_limit_keeps_the_best(limit: int) -> None:
    corpus = made(7, 300) | {10_000 + n: ["w0"] for n in range(20)}
    everything = searched(["w0", "w2"], corpus)
    best = searched(["w0", "w2"], corpus, limit=limit)
    assert best.vids.tolist() == everything.vids.tolist()[:limit]
    assert best.scores.tolist() == everything.scores.tolist()[:limit]


VIDS = st.integers(1, 2**39 - 1) | st.integers(1, 50)
CORPORA = st.dictionaries(VIDS, st.lists(st.sampled_from("abcde"), min_size=1, max_size=30), max_size=25)


@given(CORPORA, st.lists(st.sampled_from("abcdef"), max_size=6), st.sets(st.integers(0, 24)))
def test_equals_the_naive_reference(corpus: Corpus, query: list[str], places: set[int]) -> None:
    dead = {vid: len(words) for place, (vid, words) in enumerate(corpus.items()) if place in places}
    living = {vid: words for vid, words in corpus.items() if vid not in dead}
    same(searched(query, corpus, dead=dead), naive(query, living))
