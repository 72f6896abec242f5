"""Values: JSON objects that survive exactly, or are refused with the path of what can't."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any

import psycopg
import pytest
from langgraph.store.base import PutOp

from store_subjects import Do, Raises, Ruling, navin_only

DOCS = ("docs",)


def deep(levels: int) -> dict[str, Any]:
    """An object nested so many levels."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"d": value}
    return value


EXACT: dict[str, dict[str, Any]] = {
    "empty": {},
    "kinds": {"t": True, "f": False, "n": None, "i": 0, "s": "", "l": [], "o": {}},
    "whole-floats": {"one": 1.0, "hundred": 100.0},
    "floats": {"a": 0.1, "third": 1 / 3, "neg": -2.5},
    "64-bit": {"max": 2**63 - 1, "min": -(2**63), "past-float": 2**53 + 1},
    "text": {"emoji": "👩‍👩‍👧‍👦", "rtl": "שלום", "controls": "\x01\x1f\x7f\t\r\n"},
    "marks": {"quotes": "\"'\\/", "sep": "\u2028\u2029", "last": "\U0010ffff\uffff"},
    "unicode-forms": {"nfc": "\u00e9", "nfd": "e\u0301", "\u00e9": 1, "e\u0301": 2},
    "keys": {"": 1, " ": 2, "a.b": 3, "$eq": 4, "a'b": 5, 'a"b': 6, "👍": 7, "\n": 8},
    "reserved": {"value": 1, "key": 2, "namespace": 3, "id": None, "tenant": "x", "kind": "y"},
    "nested": {"a": [[[{"b": [{}, [], None]}]]]},
    "deep": deep(100),
    "long": {"text": "x" * 1_000_000},
    "wide": {f"k{n}": n for n in range(5_000)},
}


async def test_a_json_object_survives(do: Do, subtests: pytest.Subtests) -> None:
    for name, value in EXACT.items():
        written = json.dumps(value, sort_keys=True)
        with subtests.test(name):
            await do.put((name,), "k", value)
            assert json.dumps((await do.must_get((name,), "k")).value, sort_keys=True) == written
            assert [json.dumps(found.value, sort_keys=True) for found in await do.search((name,))] == [written]


@pytest.mark.parametrize("number", [1e16, -1.5e19, 1e22, 5e-324], ids=str)
async def test_a_float_stays_a_float(do: Do, number: float) -> None:
    await do.put(DOCS, "k", {"n": number})
    ruling = Ruling(True, postgres=abs(number) < 1e16, why="exact is exact; jsonb writes large floats out as integers")
    assert (repr((await do.must_get(DOCS, "k")).value["n"]) == repr(number)) is ruling.of(do)


async def test_a_large_integer_is_exact_or_refused(do: Do) -> None:
    ruling = Ruling(Raises(ValueError, ("value.n",)), memory=None, postgres=None, why="few JSON readers carry more than 64 bit")
    for number in (2**64, -(2**63) - 1, 10**30):
        await ruling.check(do, lambda n=number: do.put(DOCS, "k", {"n": n}))  # type: ignore[misc]


INVALID = Raises(psycopg.DataError)
MISTYPED = Raises(TypeError)
LOST: dict[str, tuple[Any, Any]] = {
    "nan": (float("nan"), INVALID),
    "infinity": (float("inf"), INVALID),
    "minus-infinity": (float("-inf"), INVALID),
    "nul": ("a\x00b", INVALID),
    "surrogate": ("a\ud800b", INVALID),
    "nul-in-a-key": ({"a\x00b": 1}, INVALID),
    "surrogate-in-a-key": ({"\udfff": 1}, INVALID),
    "number-as-a-key": ({1: "x"}, None),
    "none-as-a-key": ({None: "x"}, None),
    "tuple": ((1, 2), None),
    "set": ({1, 2}, MISTYPED),
    "bytes": (b"ab", MISTYPED),
    "datetime": (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), MISTYPED),
    "uuid": (uuid.UUID(int=1), MISTYPED),
    "decimal": (decimal.Decimal("1.5"), MISTYPED),
    "object": (object(), MISTYPED),
}


async def test_what_json_cannot_hold_is_refused_by_its_path(do: Do, subtests: pytest.Subtests) -> None:
    why = "a value is kept exactly or refused where it is given; memory keeps any object, PostgresStore changes or fails"
    for name, (lost, postgres) in LOST.items():
        ruling = Ruling(Raises(ValueError, ("profile", "scores", "1")), memory=None, postgres=postgres, why=why)
        with subtests.test(name):
            await ruling.check(do, lambda lost=lost: do.put(DOCS, "k", {"profile": {"scores": [1.0, lost]}}))  # type: ignore[misc]


async def test_a_value_is_an_object(do: Do, subtests: pytest.Subtests) -> None:
    for value, by_dict in ((["a"], ValueError), ("text", ValueError), (7, TypeError), (True, TypeError)):
        ruling = Ruling(Raises(ValueError, ("value",)), memory=Raises(by_dict), postgres=Raises(by_dict), why="theirs is dict()'s error")
        with subtests.test(str(value)):
            await ruling.check(do, lambda value=value: do.put(DOCS, "k", value))  # type: ignore[misc]


async def test_a_value_nests_only_so_deep(do: Do) -> None:
    ruling = Ruling(
        Raises(ValueError, ("deep",)), memory=None, postgres=Raises(RecursionError), why="said before the reader of it would fail"
    )
    await ruling.check(do, lambda: do.put(DOCS, "k", deep(5_000)))


async def test_a_refused_value_leaves_the_old_one(do: Do) -> None:
    await do.put(DOCS, "k", {"v": "old"})
    bad = [PutOp(DOCS, "other", {"n": 1}), PutOp(DOCS, "k", {"v": float("nan")})]
    ruling = Ruling(Raises(ValueError, ("value.v",)), memory=[None, None], postgres=INVALID, why="as above")
    await ruling.check(do, lambda: do.batch(bad))
    kept = Ruling(["k"], memory=["k", "other"], why="memory refused nothing")
    assert sorted(await do.keys(DOCS)) == kept.of(do)


@navin_only
async def test_an_error_never_holds_the_value(do: Do, subtests: pytest.Subtests) -> None:
    for name, (lost, _) in LOST.items():
        with subtests.test(name), pytest.raises(ValueError, match="value") as caught:
            await do.put(DOCS, "k", {"note": "mango-secret", "n": ["mango-secret", {"mango-secret": lost}]})
        assert "mango-secret" not in str(caught.value).replace("value.n[1].mango-secret", "")
