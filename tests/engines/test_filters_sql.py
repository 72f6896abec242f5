"""Filters as SQL answer exactly as they do in memory, on values as PostgreSQL really keeps them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import PutOp
from psycopg.sql import SQL

from langgraph_navin import Navin
from langgraph_navin.engines.builtin.conditions import Conditions
from langgraph_navin.filters import matches, parse
from langgraph_navin.values import INT_MAX, INT_MIN, decode, encode

#: One connection serves all examples: they change nothing.
shared = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Few of each, so that a filter often meets a value; each has been a trap somewhere.
NAMES = st.sampled_from(["a", "b", "a.b", "0", "", "é'\"\\{}%s", "A"])
TEXTS = st.sampled_from(
    ["", "a", "A", "B", "ab", "é", "e\u0301", "1", "true", "\x01", "\uffff", "\U0001f600", "\U0010ffff", "%", "'", "\\", '"']
)
INTS = st.sampled_from([0, 1, -1, 2, 2**53, 2**53 + 1, 2**63 - 1, 2**63, INT_MAX, INT_MIN])
FLOATS = st.sampled_from([0.0, 1.0, 0.1, -1.0, 1.5, 2.0**53, 1e16, 2.0**63, 1e19, 2.0**64, 1e22, 1e300, 5e-324, -5e-324, -1e17])
#: jsonb keeps no sign of a zero.
ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x or 0.0)
LEAVES = st.one_of(st.none(), st.booleans(), INTS, FLOATS, TEXTS)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
COMPARABLE = st.one_of(INTS, FLOATS, TEXTS)


def operators(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What may stand beside a field's name."""
    orders = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), COMPARABLE, min_size=1, max_size=2)
    others = st.one_of(
        VALUES.map(lambda v: {"$eq": v}),
        VALUES.map(lambda v: {"$ne": v}),
        st.lists(VALUES, max_size=3).map(lambda v: {"$in": v}),
        VALUES.map(lambda v: {"$contains": v}),
    )
    plain = st.one_of(LEAVES, st.lists(VALUES, max_size=2), orders, others)
    return st.recursive(plain, lambda more: more.map(lambda o: {"$not": o}) | st.dictionaries(NAMES, more, max_size=2), max_leaves=3)


FIELDS = st.dictionaries(NAMES, operators(VALUES), max_size=2)
FILTERS = st.recursive(
    FIELDS,
    lambda inner: st.one_of(
        st.builds(lambda word, parts, more: {word: parts, **more}, st.sampled_from(["$and", "$or"]), st.lists(inner, max_size=3), FIELDS),
        st.builds(lambda part, more: {"$not": part, **more}, inner, FIELDS),
    ),
    max_leaves=4,
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A filter, and values of which some were made from the filter's own words."""
    wanted = draw(FILTERS)
    found = draw(st.lists(OBJECTS, min_size=1, max_size=5))
    return wanted, found + [_like(wanted)] + [value | _like(wanted) for value in found[:2]]


def _like(wanted: Any) -> Any:
    """A value that has a filter's shape without its operators."""
    if not isinstance(wanted, dict):
        return wanted
    flat: dict[str, Any] = {}
    for name, operand in wanted.items():
        if not name.startswith("$"):
            flat[name] = _operand(operand)
        elif isinstance(operand, dict):
            flat |= _like(operand)
        elif name in ("$and", "$or"):
            for part in operand:
                flat |= _like(part)
    return flat


def _operand(operand: Any) -> Any:
    if isinstance(operand, dict) and operand and all(name.startswith("$") for name in operand):
        return _operand(next(iter(operand.values())))
    return _like(operand)


@pytest.fixture(scope="module")
def connection(pg18: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(pg18, autocommit=True) as opened:
        yield opened


def answered(connection: psycopg.Connection[Any], wanted: dict[str, Any], found: list[dict[str, Any]]) -> list[bool | None]:
    """What PostgreSQL says of each value."""
    conditions = Conditions()
    conditions.meets(parse(wanted))
    rows = SQL(
        "select {} from unnest(%(values)s::text[]) with ordinality t(v, at) cross join lateral (select t.v::jsonb as value) i order by at"
    )
    params = {"values": [encode(value).decode() for value in found], **conditions.params}
    return [row[0] for row in connection.execute(rows.format(conditions.sql()), params)]


@shared
@given(case=cases())
def test_postgresql_answers_as_memory_does(connection: psycopg.Connection[Any], case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    wanted, found = case
    condition = parse(wanted)
    assert answered(connection, wanted, found) == [matches(condition, value) for value in found]


@shared
@given(
    value=st.one_of(st.integers(INT_MIN, INT_MAX), ANY_FLOAT, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
)
def test_every_scalar_equals_itself_and_stands_right_to_its_neighbours(connection: psycopg.Connection[Any], value: Any) -> None:
    operands: list[Any] = [value, {"$gte": value}, {"$gt": value}, {"$contains": value}, {"$in": [value]}]
    others: list[dict[str, Any]] = [
        {"v": value},
        {"v": [value]},
        {"v": [[value]]},
        {"v": str(value)},
        {"v": 1},
        {"v": 2.0**63},
        {"v": "m"},
        {"v": "M"},
        {},
    ]
    for each in ({"v": operand} for operand in operands):
        condition = parse(each)
        assert answered(connection, each, others) == [matches(condition, other) for other in others]


def test_a_condition_is_never_null(connection: psycopg.Connection[Any]) -> None:
    found: list[dict[str, Any]] = [{}, {"a": None}, {"a": []}, {"a": {}}, {"a": "x"}, {"a": 1}]
    operands: list[Any] = [1, None, {}, [], {"$gt": 1}, {"$gt": "a"}, {"$contains": 1}, {"$in": []}, {"b": 1}, {"b": {"$lt": 1}}]
    for operand in operands:
        for wanted in ({"a": operand}, {"$not": {"a": operand}}, {"a": {"$not": operand}}):
            assert None not in answered(connection, wanted, found)


def test_text_is_ordered_by_code_point_in_any_database(connection: psycopg.Connection[Any]) -> None:
    # Looked up in the statement: the servers of these tests know no collation that would sort otherwise.
    conditions = Conditions()
    conditions.meets(parse({"a": {"$gt": "x"}}))
    assert conditions.sql().as_string(connection).count('collate "C"') == 1


# --- values as they are kept ------------------------------------------------------------------------------------

JSON_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(INT_MIN, INT_MAX), ANY_FLOAT, FLOATS, JSON_TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXTS, inner, max_size=4),
    max_leaves=15,
)


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@shared
@given(value=st.dictionaries(JSON_TEXTS, JSON, max_size=5))
def test_a_value_survives_jsonb_exactly(connection: psycopg.Connection[Any], value: dict[str, Any]) -> None:
    (text,) = connection.execute("select (%s::text)::jsonb::text", (encode(value).decode(),)).fetchone() or ("",)
    assert exact(decode(text)) == exact(value)


@pytest.mark.parametrize(
    "number", [1e15, 1e16, -1e16, 123456789012345678.0, 2.0**63, -(2.0**63), 1e19, 2.0**64 * (1 - 2**-53), 2.0**64, 1e22], ids=repr
)
def test_a_large_float_stays_a_float(connection: psycopg.Connection[Any], number: float) -> None:
    (text,) = connection.execute("select (%s::text)::jsonb::text", (encode({"n": number}).decode(),)).fetchone() or ("",)
    assert repr(decode(text)["n"]) == repr(number)


# --- the whole way ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def navin(pg18: str) -> Iterator[Navin]:
    with Navin.open(pg18, tenant=f"t-{uuid.uuid4().hex}", connections=2) as opened:
        yield opened


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_a_search_finds_what_memory_would(navin: Navin, case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    wanted, found = case
    condition, namespace = parse(wanted), (uuid.uuid4().hex,)
    navin.store.batch([PutOp(namespace, str(at), value) for at, value in enumerate(found)])
    hits = {item.key: exact(item.value) for item in navin.store.search(namespace, filter=wanted, limit=100)}
    assert hits == {str(at): exact(value) for at, value in enumerate(found) if matches(condition, value)}
