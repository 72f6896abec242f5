"""Reads of many memories: newest first, by filter, by question, and the namespaces that hold something."""

from __future__ import annotations

from typing import Any

import pytest

from ...operations import Search
from ..bench import NOTES, Bench, reach, rewrite, write
from .needs import needs

#: Values by key, and which keys a filter finds.
FILED: dict[str, dict[str, Any]] = {
    "int": {"n": 3},
    "one": {"n": 1},
    "float": {"n": 3.5},
    "text": {"n": "3"},
    "true": {"n": True},
    "null": {"n": None},
    "list": {"n": [1, {"a": 1, "b": 2}]},
    "object": {"n": {"a": {"b": 1}, "c": 2}},
    "none": {},
}
ALL = set(FILED)
FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, ALL),
    ({"n": 3}, {"int"}),
    ({"n": "3"}, {"text"}),
    ({"n": True}, {"true"}),
    ({"n": 1}, {"one"}),
    ({"n": None}, {"null"}),
    ({"n": {"$ne": 3}}, ALL - {"int"}),
    ({"n": {"$gt": 2}}, {"int", "float"}),
    ({"n": {"$gt": 3, "$lte": 3.5}}, {"float"}),
    ({"n": {"$gte": "3"}}, {"text"}),
    ({"n": {"$in": [3, None]}}, {"int", "null"}),
    ({"n": {"$contains": 1}}, {"list"}),
    ({"n": {"$contains": [{"b": 2}]}}, {"list"}),
    ({"n": {"a": {"b": 1}}}, {"object"}),
    ({"n": {}}, {"object"}),
    ({"n": {"0": 1}}, set()),
    ({"$or": [{"n": 3}, {"n": "3"}]}, {"int", "text"}),
    ({"$and": [{"n": {"$gt": 2}}, {"n": {"$not": {"$gt": 3}}}]}, {"int"}),
    ({"$not": {"n": {"$in": [3, 3.5]}}}, ALL - {"int", "float"}),
    ({"$or": []}, set()),
]


class Lists:
    """Lists are exact, in order, and whole over their pages."""

    @needs("remember", "list")
    def test_the_newest_come_first(self, bench: Bench) -> None:
        for key in "abc":
            bench.remember(key)
        bench.remember("a", {"again": True})
        assert bench.keys() == ["a", "c", "b"]

    @needs("remember", "list")
    def test_what_was_written_together_is_in_the_order_of_names(self, bench: Bench) -> None:
        bench.ask(write("b"), write("B"), write("a", namespace=("user", "u-1", "z")), write("é"), write("a"))
        assert [(item.namespace[-1], item.key) for item in bench.listed()] == [
            *(("notes", key) for key in ("B", "a", "b", "é")),
            ("z", "a"),
        ]

    @needs("remember", "list")
    def test_pages_are_whole(self, bench: Bench) -> None:
        bench.ask(*(write(f"k{at}") for at in range(7)))
        pages = [bench.keys(limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert pages == [["k0", "k1", "k2"], ["k3", "k4", "k5"], ["k6"], []]
        assert bench.keys(limit=0) == []

    @needs("remember", "list")
    def test_a_prefix_ends_at_a_label(self, bench: Bench) -> None:
        for labels in (("a",), ("a", "b"), ("a", "bc"), ("a", "b", "c"), ("ab",)):
            bench.remember("/".join(labels), namespace=labels)
        assert set(bench.keys(("a", "b"))) == {"a/b", "a/b/c"}
        assert len(bench.keys(("a",))) == 4
        assert len(bench.keys(())) == 5

    @needs("remember", "list")
    def test_prefixes_have_no_wildcards(self, bench: Bench) -> None:
        for label in ("%", "_", "*", "x"):
            bench.remember(label, namespace=("a", label))
        for label in ("%", "_", "*"):
            assert bench.keys(("a", label)) == [label]

    @needs("remember", "list")
    def test_a_long_prefix_is_compared_whole(self, bench: Bench) -> None:
        long = tuple("l" * 200 for _ in range(6))
        for last in ("a", "b"):
            bench.remember(last, namespace=(*long, last, "end"))
        assert bench.keys((*long, "a")) == ["a"]
        assert len(bench.keys(long)) == 2

    @needs("remember", "list")
    @pytest.mark.parametrize(("filter", "found"), FILTERS)
    def test_filters_mean_one_thing(self, bench: Bench, filter: dict[str, Any], found: set[str]) -> None:
        bench.ask(*(write(key, value) for key, value in FILED.items()))
        assert set(bench.keys((), filter)) == found

    @needs("remember", "list")
    def test_a_filter_is_applied_before_the_page(self, bench: Bench) -> None:
        bench.ask(*(write(f"k{at}", {"odd": at % 2}) for at in range(10)))
        assert bench.keys((), {"odd": 1}, limit=2, offset=1) == ["k3", "k5"]

    # --- namespaces -------------------------------------------------------------------------------------------

    @needs("remember", "forget", "list")
    def test_a_namespace_exists_while_it_holds_something(self, bench: Bench) -> None:
        bench.ask(write("a"), write("b"), write("a", namespace=("user", "x")))
        assert bench.namespaces() == [NOTES, ("user", "x")]
        bench.forget("a")
        bench.forget("b")
        assert bench.namespaces() == [("user", "x")]

    @needs("remember", "list")
    def test_patterns_of_namespaces(self, bench: Bench) -> None:
        made = [("a",), ("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("b", "b", "c"), ("ab", "c")]
        bench.ask(*(write(namespace=labels) for labels in made))
        assert bench.namespaces() == [("a",), ("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("ab", "c"), ("b", "b", "c")]
        assert bench.namespaces(("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
        assert bench.namespaces(("*", "b")) == [("a", "b"), ("a", "b", "c"), ("b", "b", "c")]
        assert bench.namespaces(suffixes=(("b", "*"),)) == [("a", "b", "c"), ("b", "b", "c")]
        assert bench.namespaces(("a",), suffixes=(("c",),)) == [("a", "b", "c"), ("a", "x", "c")]
        assert bench.namespaces(("a", "b"), suffixes=(("a", "b"),)) == [("a", "b")]
        assert bench.namespaces(("a",), ("*", "b")) == [("a", "b"), ("a", "b", "c")]

    @needs("remember", "list")
    def test_namespaces_are_cut_and_counted_once(self, bench: Bench) -> None:
        bench.ask(*(write(namespace=labels) for labels in [("a", "b", "c"), ("a", "b", "d"), ("a",), ("b", "c", "d")]))
        assert bench.namespaces(max_depth=2) == [("a",), ("a", "b"), ("b", "c")]
        assert bench.namespaces(max_depth=2, limit=1, offset=1) == [("a", "b")]
        assert bench.namespaces(suffixes=(("d",),), max_depth=1) == [("a",), ("b",)]


class Searches:
    """A question finds the texts that share a word with it, best first."""

    @needs("remember", "search")
    def test_words_are_found_and_the_best_comes_first(self, bench: Bench) -> None:
        bench.ask(
            write("both", {"text": "green tea and tea cakes"}),
            write("one", {"text": "green apples, red apples, yellow apples and pears"}),
            write("none", {"text": "coffee"}),
        )
        found = bench.search("green tea")
        assert [item.key for item in found] == ["both", "one"]
        assert found[0].score is not None
        assert found[1].score is not None
        assert found[0].score > found[1].score

    @needs("remember", "search")
    def test_a_search_keeps_to_prefix_and_filter_before_its_page(self, bench: Bench) -> None:
        bench.ask(
            *(write(f"k{at}", {"text": "tea", "odd": at % 2}) for at in range(8)), write("far", {"text": "tea"}, namespace=("user", "x"))
        )
        assert sorted(bench.hits("tea", ("user", "x"))) == ["far"]
        assert sorted(bench.hits("tea", NOTES, {"odd": 1})) == ["k1", "k3", "k5", "k7"]
        pages = [bench.hits("tea", NOTES, {"odd": 0}, limit=2, offset=offset) for offset in (0, 2, 4)]
        assert sorted(pages[0] + pages[1]) == ["k0", "k2", "k4", "k6"]
        assert pages[2] == []

    @needs("remember", "search", "update", "forget")
    def test_a_search_follows_every_change_at_once(self, bench: Bench) -> None:
        stored = bench.remember("a", {"text": "tea"})
        bench.one(rewrite(stored.id, {"text": "coffee"}))
        assert (bench.hits("tea"), bench.hits("coffee")) == ([], ["a"])
        bench.remember("a", {"text": "cocoa"})
        assert (bench.hits("coffee"), bench.hits("cocoa")) == ([], ["a"])
        bench.forget("a")
        assert bench.hits("cocoa") == []

    @needs("remember", "search", "list")
    def test_what_is_not_indexed_is_not_found(self, bench: Bench) -> None:
        bench.remember("hidden", {"text": "tea"}, index=False)
        bench.remember("title", {"title": "tea", "text": "coffee"}, index=("title",))
        assert bench.hits("tea") == ["title"]
        assert bench.hits("coffee") == []
        assert sorted(bench.keys()) == ["hidden", "title"]

    @needs("remember", "search")
    def test_odd_questions_are_answered(self, bench: Bench) -> None:
        bench.remember("a", {"text": "tea"})
        for question in ("& | ! ( ) <->", "'", "\\", "tea" * 4000, "🙂"):
            assert isinstance(bench.one(Search((), question)), list)
        assert bench.search("tea", at=reach(scopes=("team",))) == []
