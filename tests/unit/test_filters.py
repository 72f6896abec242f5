"""Filters: a truth table over the cases where LangGraph's own stores disagree, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_navin.errors import InvalidRequest
from langgraph_navin.filters import matches, parse
from langgraph_navin.values import DEPTH_LIMIT

MARKER = "S3CRET-VALUE"

ITEMS: dict[str, dict[str, Any]] = {
    "a": {"n": 9, "s": "x", "o": {"b": 1, "c": 2}, "l": [1, 2], "big": 2**53 + 1},
    "b": {"n": 10, "s": "é", "l": [[1, 2], {"x": 1, "y": [1, 2]}]},
    "c": {"n": None, "o": {"b": {"c": 1}}, "l": "x"},
    "d": {"n": "9", "s": "X", "o": "b"},
    "e": {"n": 9.5, "o": {"b": 1.0}, "o.b": 1, "big": 2**53},
    "f": {"n": True, "l": [], "o": {}, "": 0},
    "g": {"n": [9], "l": [None, True, "x"], "0": "zero"},
}
EVERY = "a b c d e f g"

TABLE: list[tuple[dict[str, Any] | None, str]] = [
    # nothing is asked for
    (None, EVERY),
    ({}, EVERY),
    # equality: by JSON type and value
    ({"n": 9}, "a"),
    ({"n": 9.0}, "a"),
    ({"n": "9"}, "d"),
    ({"n": True}, "f"),
    ({"n": 1}, ""),
    ({"n": False}, ""),
    ({"n": [9]}, "g"),
    ({"n": [9.0]}, "g"),
    ({"n": []}, ""),
    ({"l": []}, "f"),
    ({"l": [1, 2]}, "a"),
    ({"l": [2, 1]}, ""),
    ({"l": [1]}, ""),
    ({"l": [True, 2]}, ""),
    ({"s": "x"}, "a"),
    ({"s": "e\u0301"}, ""),
    ({"n": 9, "s": "x"}, "a"),
    ({"n": 9, "s": "X"}, ""),
    ({"": 0}, "f"),
    ({"0": "zero"}, "g"),
    ({"l": {"0": 1}}, ""),
    # a missing field is not null, and null is a value
    ({"n": None}, "c"),
    ({"never": None}, ""),
    ({"n": {"$eq": None}}, "c"),
    ({"s": {"$ne": None}}, EVERY),
    ({"n": {"$ne": None}}, "a b d e f g"),
    # not equal: a missing field matches
    ({"n": {"$ne": 9}}, "b c d e f g"),
    ({"s": {"$ne": "x"}}, "b c d e f g"),
    ({"never": {"$ne": 1}}, EVERY),
    ({"n": {"$ne": 1}}, EVERY),
    # order: numbers with numbers, text with text, the rest with nothing
    ({"n": {"$gt": 9}}, "b e"),
    ({"n": {"$gte": 9}}, "a b e"),
    ({"n": {"$lt": 10}}, "a e"),
    ({"n": {"$lte": 9.0}}, "a"),
    ({"n": {"$gt": -1}}, "a b e"),
    ({"n": {"$lt": 2}}, ""),
    ({"n": {"$gt": ""}}, "d"),
    ({"n": {"$gte": "10"}}, "d"),
    ({"n": {"$gt": 9, "$lt": 10}}, "e"),
    ({"s": {"$gt": "w"}}, "a b"),
    ({"s": {"$lt": "x"}}, "d"),
    ({"s": {"$gte": "é"}}, "b"),
    ({"never": {"$lt": 1}}, ""),
    ({"l": {"$gt": 0}}, ""),
    ({"o": {"$gt": "a"}}, "d"),
    ({"big": {"$gt": 2**53}}, "a"),
    ({"big": float(2**53)}, "e"),
    # objects: a partial match at any depth
    ({"o": {"b": 1}}, "a e"),
    ({"o": {"b": 1, "c": 2}}, "a"),
    ({"o": {"b": {"c": 1}}}, "c"),
    ({"o": {"b": {}}}, "c"),
    ({"o": {}}, "a c e f"),
    ({"n": {}}, ""),
    ({"o": {"b": None}}, ""),
    ({"o": {"c": {"$ne": 2}}}, "c e f"),
    ({"o": {"$eq": {"b": 1}}}, "e"),
    ({"o": {"$eq": {}}}, "f"),
    ({"o": {"b": {"$gte": 1}}}, "a e"),
    ({"o.b": 1}, "e"),
    # membership
    ({"n": {"$in": [9, None, "9"]}}, "a c d"),
    ({"n": {"$in": [1, True]}}, "f"),
    ({"n": {"$in": [[9]]}}, "g"),
    ({"n": {"$in": []}}, ""),
    ({"s": {"$in": [None]}}, ""),
    ({"l": {"$contains": 1}}, "a"),
    ({"l": {"$contains": 1.0}}, "a"),
    ({"l": {"$contains": [2, 1]}}, "a"),
    ({"l": {"$contains": [1, 3]}}, ""),
    ({"l": {"$contains": []}}, "a b f g"),
    ({"l": {"$contains": "x"}}, "g"),
    ({"l": {"$contains": None}}, "g"),
    ({"l": {"$contains": True}}, "g"),
    ({"l": {"$contains": {"x": 1}}}, "b"),
    ({"l": {"$contains": [[2]]}}, "b"),
    ({"s": {"$contains": "x"}}, ""),
    ({"o": {"$contains": "b"}}, ""),
    # negation, conjunction, disjunction
    ({"n": {"$not": {"$gt": 9}}}, "a c d f g"),
    ({"n": {"$not": 9}}, "b c d e f g"),
    ({"n": {"$not": None}}, "a b d e f g"),
    ({"n": {"$not": {"$not": 9}}}, "a"),
    ({"o": {"$not": {"b": 1}}}, "b c d f g"),
    ({"$not": {"n": 9, "s": "x"}}, "b c d e f g"),
    ({"$not": {}}, ""),
    ({"$and": [{"n": 9}, {"s": "x"}]}, "a"),
    ({"$and": [{"n": 9}, {"n": 10}]}, ""),
    ({"$and": []}, EVERY),
    ({"$or": [{"n": 9}, {"n": 10}]}, "a b"),
    ({"$or": []}, ""),
    ({"$or": [{}]}, EVERY),
    ({"$or": [{"n": 9}], "s": "é"}, ""),
    ({"$and": [{"$or": [{"n": 9}, {"n": 10}]}, {"$not": {"s": "é"}}]}, "a"),
    # what LangGraph Server sends
    ({"$and": [{"n": {"$gte": 9}}, {"l": {"$contains": [1]}}]}, "a"),
]


@pytest.mark.parametrize(("wanted", "found"), TABLE, ids=lambda v: str(v))
def test_a_filter_finds(wanted: dict[str, Any] | None, found: str) -> None:
    condition = parse(wanted)
    assert " ".join(key for key, value in ITEMS.items() if matches(condition, value)) == found


REFUSED: list[tuple[Any, str]] = [
    ("n", "filter must be a dict"),
    ([{"n": 1}], "filter must be a dict"),
    ({"n": {"$regex": MARKER}}, "filter.n.$regex is an unsupported operator"),
    ({"n": {"$gt": 1, "$near": MARKER}}, "filter.n.$near is an unsupported operator"),
    ({"o": {"b": {"$exists": True}}}, "filter.o.b.$exists is an unsupported operator"),
    ({"o": {"$or": [{"b": 1}]}}, "filter.o.$or is an unsupported operator"),
    ({"$nor": [{"n": MARKER}]}, "'$nor'"),
    ({"$eq": MARKER}, "'$eq'"),
    ({"$": 1}, "'$'"),
    ({"n": {"$gt": 1, "x": MARKER}}, "filter.n mixes operators and fields"),
    ({"n": {"$gt": None}}, "filter.n.$gt must be a number or text, got NoneType"),
    ({"n": {"$lt": [MARKER]}}, "filter.n.$lt must be a number or text, got list"),
    ({"n": {"$gte": True}}, "filter.n.$gte must be a number or text, got bool"),
    ({"n": {"$lte": {"a": MARKER}}}, "filter.n.$lte must be a number or text, got dict"),
    ({"n": {"$in": MARKER}}, "filter.n.$in must be a list"),
    ({"n": {"$in": (MARKER,)}}, "filter.n.$in is of type tuple"),
    ({"n": {"$in": [1, {MARKER}]}}, "filter.n.$in[1] is of type set"),
    ({"n": {1, 2}}, "filter.n is of type set"),
    ({"n": float("nan")}, "filter.n must be a finite number"),
    ({"n": {"$gt": float("inf")}}, "filter.n.$gt must be a finite number"),
    ({"n": f"{MARKER}\x00"}, "filter.n holds NUL"),
    ({"n": [f"{MARKER}\ud800"]}, "filter.n[0] holds a lone surrogate"),
    ({"n": 2**64}, "filter.n must fit into 64 bit"),
    ({"a\x00b": 1}, "a key of filter holds NUL"),
    ({"o": {"a\x00b": 1}}, "a key of filter.o holds NUL"),
    ({1: MARKER}, "filter has a key of type int"),
    ({"o": {1: MARKER}}, "filter.o has a key of type int"),
    ({"$and": {"n": MARKER}}, "filter.$and must be a list of filters"),
    ({"$and": MARKER}, "filter.$and must be a list of filters"),
    ({"$or": [{"n": 1}, MARKER]}, "filter.$or[1] must be a filter"),
    ({"$not": [MARKER]}, "filter.$not must be a filter"),
    ({"$and": [{"$or": [{"n": {"$bad": MARKER}}]}]}, "filter.$and[0].$or[0].n.$bad is an unsupported operator"),
]


@pytest.mark.parametrize(("wanted", "message"), REFUSED, ids=lambda v: ascii(v)[:60])
def test_a_filter_that_states_nothing_sound_is_refused_by_its_place(wanted: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(wanted)
    assert message in str(refused.value)
    assert str(refused.value.details["field"]).split(".")[0] in {"filter", "a key of filter"}
    assert MARKER not in repr((refused.value, refused.value.details))


def test_an_unknown_operator_is_told_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match=r"\$eq, \$ne, \$gt, \$gte, \$lt, \$lte, \$in, \$contains and \$not"):
        parse({"n": {"$regex": "x"}})


@pytest.mark.parametrize("layer", ["field", "$not", "$and", "inner $not", "both"])
def test_a_filter_nested_without_end_is_refused(layer: str) -> None:
    wrap = {
        "field": lambda f: {"a": f},
        "$not": lambda f: {"$not": f},
        "$and": lambda f: {"$and": [f]},
        "inner $not": lambda f: {"a": {"$not": f}},
        "both": lambda f: {"a": {"$not": {"b": f}}},
    }[layer]
    wanted: dict[str, Any] = {"n": 1}
    for _ in range(DEPTH_LIMIT * 5):
        wanted = wrap(wanted)
    with pytest.raises(InvalidRequest, match="nested deeper"):
        parse(wanted)


def test_a_filter_as_deep_as_people_write_them_is_accepted() -> None:
    wanted: dict[str, Any] = {"n": 9}
    for _ in range(10):
        wanted = {"$and": [{"$or": [wanted, {"n": 10}]}]}
    assert matches(parse(wanted), {"n": 10})


def test_the_filter_is_read_once() -> None:
    wanted = {"n": {"$in": [1, 2]}}
    condition = parse(wanted)
    wanted["n"]["$in"].append(3)
    assert not matches(condition, {"n": 3})
