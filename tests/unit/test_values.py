"""Values survive exactly, or are refused by the path of what can't, without a word of it."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import re
import uuid
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin import values
from langgraph_navin.errors import InvalidRequest
from langgraph_navin.values import DEPTH_LIMIT, INT_MAX, INT_MIN, check, decode, dump, encode

MARKER = "S3CRET-VALUE"

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
NUMBERS = st.one_of(st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False, allow_infinity=False))
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=20)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=5)


def exact(value: Any) -> str:
    """A text that differs wherever two values do: 1 and 1.0 and True, 0.0 and -0.0."""
    return json.dumps(value, sort_keys=True)


def nested(levels: int, leaf: Any = None) -> Any:
    value = leaf
    for level in range(levels):
        value = {"d": value} if level % 2 else [value]
    return value


# --- survival ---------------------------------------------------------------------------------------------------


@given(OBJECTS)
def test_what_is_accepted_comes_back(value: dict[str, Any]) -> None:
    assert exact(decode(encode(value))) == exact(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_comes_back_as_itself(number: float) -> None:
    back = decode(encode({"n": number}))["n"]
    assert type(back) is float
    assert math.copysign(1, back) == math.copysign(1, number)
    assert back == number


@pytest.mark.parametrize("number", [INT_MIN, INT_MIN + 1, -1, 0, 2**53 + 1, 2**63 - 1, 2**63, INT_MAX])
def test_integers_of_64_bit_come_back(number: int) -> None:
    back = decode(encode({"n": number}))["n"]
    assert type(back) is int
    assert back == number


@pytest.mark.parametrize("number", [INT_MIN - 1, INT_MAX + 1, 10**30, -(10**400)])
def test_larger_integers_are_refused(number: int) -> None:
    with pytest.raises(InvalidRequest, match=r"value\.n must fit into 64 bit") as refused:
        encode({"n": number})
    assert str(number)[:19] not in str(refused.value)


@given(JSON)
def test_any_json_value_passes_where_no_object_is_asked_for(value: Any) -> None:
    check(value, "operand")
    assert exact(json.loads(dump(value))) == exact(value)


# --- refusal ----------------------------------------------------------------------------------------------------


class Colour(enum.StrEnum):
    RED = MARKER


class Number(int):
    pass


class Pair(NamedTuple):
    left: str
    right: str


class Shy:
    def __repr__(self) -> str:
        return MARKER


BAD: list[Any] = [
    float("nan"),
    float("inf"),
    -float("inf"),
    f"{MARKER}\x00",
    f"é{MARKER}\x00",
    f"{MARKER}\ud800",
    10**30,
    (MARKER,),
    {MARKER},
    frozenset({MARKER}),
    MARKER.encode(),
    bytearray(MARKER.encode()),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 1),
    uuid.UUID(int=1),
    decimal.Decimal("1.5"),
    1j,
    Number(7),
    Pair(MARKER, MARKER),
    Shy(),
    Shy,
    ...,
]


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A value with one bad spot somewhere inside, and the path of that spot."""
    value: Any = draw(st.sampled_from(BAD))
    names = st.sampled_from(["a", "b c", "é", "$x", ""])
    path = ""
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            name = draw(names)
            value, path = {"first": draw(LEAVES), name: value}, f".{name}{path}"
        else:
            before = draw(st.lists(LEAVES, max_size=3))
            value, path = [*before, value], f"[{len(before)}]{path}"
    return {"root": value}, f"value.root{path}"


@given(spoilt())
def test_a_refusal_names_the_path_and_never_the_content(case: tuple[dict[str, Any], str]) -> None:
    value, path = case
    with pytest.raises(InvalidRequest) as refused:
        encode(value)
    assert refused.value.details == {"field": path}
    assert str(refused.value).startswith(path)
    assert MARKER not in repr((refused.value, refused.value.details))
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("key", [1, None, True, 1.5, (MARKER,), MARKER.encode()], ids=repr)
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^value\.a has a key of type") as refused:
        encode({"a": {key: 1}})
    assert MARKER not in str(refused.value)


@pytest.mark.parametrize("key", ["a\x00", "é\x00", "\ud800"], ids=ascii)
def test_a_key_that_cannot_be_stored_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^a key of value\.a"):
        encode({"a": {key: 1}})


def test_a_long_key_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidRequest) as refused:
        encode({"k" * 10_000: {"inner": float("nan")}})
    assert len(str(refused.value)) < 300
    assert ".inner " in str(refused.value)


@pytest.mark.parametrize("value", [None, [MARKER], MARKER, 7, True, Shy(), OrderedDict(a=MARKER).items()], ids=lambda v: type(v).__name__)
def test_a_value_is_an_object(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="JSON object") as refused:
        encode(value)
    assert MARKER not in str(refused.value)


class Name(str):
    pass


class Row(list[Any]):
    pass


@pytest.mark.parametrize("given_as", [Colour.RED, Name("x"), OrderedDict(b=1, a=2), Row([1, "x"])], ids=lambda v: type(v).__name__)
def test_a_subclass_comes_back_as_the_plain_value_that_it_equals(given_as: Any) -> None:
    back = decode(encode({"v": given_as}))["v"]
    assert back == given_as
    assert type(back) in (str, dict, list)


def test_a_subclass_is_looked_into() -> None:
    for bad in (Name(f"{MARKER}\x00"), OrderedDict(a=float("nan")), Row([{MARKER}])):
        with pytest.raises(InvalidRequest, match=r"^value\.v") as refused:
            encode({"v": bad})
        assert MARKER not in str(refused.value)


# --- limits -----------------------------------------------------------------------------------------------------


def test_the_deepest_value_survives_and_one_level_more_is_refused() -> None:
    deepest = {"d": nested(DEPTH_LIMIT - 1)}
    assert decode(encode(deepest)) == deepest
    with pytest.raises(InvalidRequest, match=f"deeper than {DEPTH_LIMIT}") as refused:
        encode({"d": nested(DEPTH_LIMIT)})
    assert len(str(refused.value)) < 300


def test_nesting_without_end_is_refused_before_the_stack_is() -> None:
    endless: dict[str, Any] = {"a": 1}
    endless["self"] = [endless, endless]
    for value in (endless, {"d": nested(100_000)}):
        with pytest.raises(InvalidRequest, match="nested deeper"):
            encode(value)


def test_width_is_not_depth() -> None:
    wide = {"rows": [[n] for n in range(1000)], "more": {str(n): {} for n in range(1000)}}
    assert decode(encode(wide)) == wide


def test_the_size_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "SIZE_LIMIT", 20)
    assert encode({"a": "x" * 12}) == b'{"a":"xxxxxxxxxxxx"}'
    for text in ("x" * 13, "é" * 7):
        with pytest.raises(InvalidRequest, match="at most 20 bytes") as refused:
            encode({"a": text})
        assert not re.search("x{3}|é", str(refused.value))


def test_a_name_other_than_value_begins_the_path() -> None:
    with pytest.raises(InvalidRequest, match=r"^source\.a\[0\] "):
        encode({"a": [float("nan")]}, "source")
