"""Filters: one table of what every operator finds, on LangGraph's stores and on ours."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import PutOp

from store_subjects import Do, Raises, Ruling

ITEMS: dict[str, dict[str, Any]] = {
    "a": {"n": 9, "s": "x", "o": {"b": 1, "c": 2}, "l": [1, 2]},
    "b": {"n": 10, "s": "y"},
    "c": {"n": None},
    "d": {"n": "9"},
    "e": {"n": 9.5, "o": {"b": 1, "d": {"e": [1]}}, "a.b": 1},
    "f": {"n": True, "l": [], "rows": [{"x": 1, "y": 2}], "o": {"b": True}},
}
EVERY = " ".join(ITEMS)
UNSUPPORTED = Raises(ValueError, ("Unsupported operator",))

TEXTUAL = "what can't be compared doesn't match, numbers are no text: memory raises, PostgresStore compares text (langgraph#7684)"
NESTED = "an object without operators is a value and matches deeply, as in memory (langgraph#8786)"
SERVER = "LangGraph Server sends `$and` and `$contains`; silence or refusal would hide an author's rule (langgraph#8829)"
MISSING = "a missing field is 'not equal', as in memory (langgraph#8366)"
ABSENT = "an absent field isn't null: memory can't tell them apart"
BOOLEAN = "a boolean is no number: Python's True == 1 is not JSON's"


def compared(ours: str, *, postgres: str, memory: Any = TypeError) -> Ruling:
    return Ruling(ours, memory=Raises(memory), postgres=postgres, why=TEXTUAL)


def ours_only(ours: str, *, memory: Any = UNSUPPORTED, postgres: Any = UNSUPPORTED) -> Ruling:
    return Ruling(ours, memory=memory, postgres=postgres, why=SERVER)


CASES: dict[str, list[tuple[dict[str, Any], Ruling]]] = {
    "equality": [
        ({}, Ruling(EVERY)),
        ({"n": 9}, Ruling("a")),
        ({"n": 9.0}, Ruling("a")),
        ({"n": "9"}, Ruling("d")),
        ({"n": True}, Ruling("f")),
        ({"n": 1}, Ruling("", memory="f", why=BOOLEAN)),
        ({"n": None}, Ruling("c")),
        ({"s": None}, Ruling("", memory="c d e f", why=ABSENT)),
        ({"never": None}, Ruling("", memory=EVERY, why=ABSENT)),
        ({"s": "X"}, Ruling("")),
        ({"n": 9, "s": "x"}, Ruling("a")),
        ({"n": 9, "s": "y"}, Ruling("")),
        ({"n": {"$eq": 9}}, Ruling("a")),
        ({"n": {"$eq": None}}, Ruling("c")),
        ({"s": {"$eq": None}}, Ruling("", memory="c d e f", why=ABSENT)),
        ({"l": {"$eq": [1, 2]}}, Ruling("a")),
        ({"o": {"$eq": {"b": 1, "c": 2}}}, Ruling("a")),
        ({"o": {"$eq": {"b": 1}}}, Ruling("", memory="f", why=BOOLEAN)),
    ],
    "inequality": [
        ({"n": {"$ne": 9}}, Ruling("b c d e f")),
        ({"s": {"$ne": "x"}}, Ruling("b c d e f", postgres="b", why=MISSING)),
        ({"never": {"$ne": 1}}, Ruling(EVERY, postgres="", why=MISSING)),
        ({"n": {"$ne": None}}, Ruling("a b d e f")),
        ({"n": {"$ne": 1}}, Ruling(EVERY, memory="a b c d e", why=BOOLEAN)),
        ({"l": {"$ne": [1, 2]}}, Ruling("b c d e f", postgres="f", why=MISSING)),
    ],
    "order": [
        ({"n": {"$gt": 9}}, compared("b e", postgres="e f")),
        ({"n": {"$gte": 9}}, compared("a b e", postgres="a d e f")),
        ({"n": {"$lt": 10}}, compared("a e", postgres="")),
        ({"n": {"$lte": 10}}, compared("a b e", postgres="b")),
        ({"n": {"$gt": 0}}, compared("a b e", postgres="a b d e f")),
        ({"n": {"$gte": 9, "$lt": 10}}, compared("a e", postgres="")),
        ({"n": {"$gt": "8"}}, compared("d", postgres="a d e f")),
        ({"s": {"$gt": "x"}}, compared("b", postgres="b", memory=ValueError)),
        ({"s": {"$lte": "x"}}, compared("a", postgres="a", memory=ValueError)),
        ({"l": {"$gt": 0}}, compared("", postgres="a f")),
    ],
    "objects": [
        ({"o": {"b": 1}}, Ruling("a e", memory="a e f", postgres=UNSUPPORTED, why=NESTED + "; " + BOOLEAN)),
        ({"o": {"b": 1, "c": 2}}, Ruling("a", postgres=UNSUPPORTED, why=NESTED)),
        ({"o": {"d": {"e": [1]}}}, Ruling("e", postgres=UNSUPPORTED, why=NESTED)),
        ({"o": {"d": {"e": [2]}}}, Ruling("", postgres=UNSUPPORTED, why=NESTED)),
        ({"o": {"c": {"$ne": 3}}}, Ruling("a e f", postgres=UNSUPPORTED, why=NESTED + "; " + MISSING)),
        ({"o": {"c": {"$gte": 2}}}, Ruling("a", memory=Raises(TypeError), postgres=UNSUPPORTED, why=NESTED + "; " + TEXTUAL)),
        ({"o": {}}, Ruling("a e f", postgres=EVERY, why="an empty object means 'is an object', as in memory")),
        ({"n": {}}, Ruling("", postgres=EVERY, why="an empty object means 'is an object', as in memory")),
        ({"o.b": 1}, Ruling("")),
        ({"a.b": 1}, Ruling("e")),
    ],
    "lists": [
        ({"l": [1, 2]}, Ruling("a")),
        ({"l": [2, 1]}, Ruling("")),
        ({"l": [1]}, Ruling("")),
        ({"l": []}, Ruling("f")),
        ({"rows": [{"x": 1, "y": 2}]}, Ruling("f")),
        ({"rows": [{"x": 1}]}, Ruling("", memory="f", why="a list is equal whole, as in PostgresStore")),
    ],
    "only ours": [
        ({"s": {"$in": ["x", "y", "z"]}}, ours_only("a b")),
        ({"n": {"$in": [9, None]}}, ours_only("a c")),
        ({"n": {"$in": [1]}}, ours_only("")),
        ({"s": {"$in": []}}, ours_only("")),
        ({"l": {"$contains": 2}}, ours_only("a")),
        ({"l": {"$contains": [2, 1]}}, ours_only("a")),
        ({"l": {"$contains": [2, 3]}}, ours_only("")),
        ({"s": {"$contains": "x"}}, ours_only("")),
        ({"n": {"$not": {"$gt": 9}}}, ours_only("a c d f")),
        ({"s": {"$not": {"$in": ["x"]}}}, ours_only("b c d e f")),
        ({"$and": [{"n": 9}, {"s": "x"}]}, ours_only("a", memory="", postgres="")),
        ({"$and": [{"n": 9}, {"s": "y"}]}, Ruling("")),
        ({"$or": [{"n": 10}, {"l": []}]}, ours_only("b f", memory="", postgres="")),
        ({"$not": {"n": 9}}, ours_only("b c d e f", memory="")),
        ({"$and": [{"$or": [{"n": 9}, {"n": 10}]}, {"$not": {"s": "y"}}]}, ours_only("a", memory="", postgres="")),
        ({"$and": [{"n": {"$gte": 9}}, {"o": {"b": 1}}], "s": "x"}, ours_only("a", memory="", postgres="")),
    ],
}


@pytest.mark.parametrize("group", CASES)
async def test_a_filter_finds(do: Do, group: str, subtests: pytest.Subtests) -> None:
    await do.batch([PutOp(("docs",), key, value) for key, value in ITEMS.items()])
    for wanted, ruling in CASES[group]:
        with subtests.test(str(wanted)):
            await ruling.check(do, lambda wanted=wanted: do.key_set(("docs",), filter=wanted))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wanted", "operator"),
    [
        ({"n": {"$regex": "x"}}, "$regex"),
        ({"n": {"$gt": 1, "$near": 2}}, "$near"),
        ({"o": {"b": {"$exists": True}}}, "$exists"),
    ],
    ids=str,
)
async def test_an_unknown_operator_is_named(do: Do, wanted: dict[str, Any], operator: str) -> None:
    await do.put(("docs",), "k", {"n": 9, "o": {"b": 1}})
    peers = {"postgres": Raises(ValueError)} if operator == "$exists" else {}
    ruling = Ruling(Raises(ValueError, (operator,)), **peers, why=NESTED)
    await ruling.check(do, lambda: do.search(("docs",), filter=wanted))


@pytest.mark.parametrize("wanted", [{"$nor": []}, {"$where": "1"}, {"$": 1}], ids=str)
async def test_an_unknown_operator_at_the_top_is_named(do: Do, wanted: dict[str, Any]) -> None:
    await do.put(("docs",), "k", {"n": 9})
    ruling = Ruling(Raises(ValueError, tuple(wanted)), memory=[], postgres=[], why=SERVER)
    await ruling.check(do, lambda: do.search(("docs",), filter=wanted))


async def test_an_unknown_operator_is_named_where_nothing_is_stored(do: Do) -> None:
    ruling = Ruling(Raises(ValueError, ("$regex",)), memory=[], why="memory looks at a filter only when an item meets it")
    await ruling.check(do, lambda: do.search(("docs",), filter={"n": {"$regex": "x"}}))


@pytest.mark.parametrize(
    ("wanted", "operator", "memory", "postgres"),
    [
        ({"$and": {"n": 1}}, "$and", [], UNSUPPORTED),
        ({"$and": [1]}, "$and", [], []),
        ({"$or": "n"}, "$or", [], []),
        ({"$not": [1]}, "$not", [], []),
        ({"n": {"$in": 1}}, "$in", UNSUPPORTED, UNSUPPORTED),
        ({"n": {"$gt": None}}, "$gt", Raises(TypeError), []),
        ({"n": {"$gt": [1]}}, "$gt", Raises(TypeError), []),
    ],
    ids=str,
)
async def test_a_misshapen_operand_is_refused(do: Do, wanted: dict[str, Any], operator: str, memory: Any, postgres: Any) -> None:
    await do.put(("docs",), "k", {"n": 1})
    ruling = Ruling(Raises(ValueError, (operator,)), memory=memory, postgres=postgres, why=SERVER)
    await ruling.check(do, lambda: do.search(("docs",), filter=wanted))


async def test_integers_compare_beyond_the_precision_of_a_float(do: Do) -> None:
    big = 2**53
    await do.batch([PutOp(("docs",), "big", {"n": big}), PutOp(("docs",), "bigger", {"n": big + 1})])
    assert await do.key_set(("docs",), filter={"n": big}) == "big"
    assert await do.key_set(("docs",), filter={"n": {"$ne": big}}) == "bigger"
    ruling = Ruling("bigger", memory="", why="memory compares floats")
    await ruling.check(do, lambda: do.key_set(("docs",), filter={"n": {"$gt": big}}))


@pytest.mark.parametrize(
    ("wanted", "ours"),
    [({"n": {"$lt": 2}}, "minus small"), ({"n": {"$gt": -3}}, "big minus small"), ({"n": {"$gte": 1e3}}, "big"), ({"n": 1000}, "big")],
    ids=str,
)
async def test_numbers_compare_as_numbers(do: Do, wanted: dict[str, Any], ours: str) -> None:
    values = {"minus": -2, "small": 0.5, "big": 1e3}
    await do.batch([PutOp(("docs",), key, {"n": n}) for key, n in values.items()])
    textual = {"{'n': {'$lt': 2}}": "big minus small", "{'n': {'$gt': -3}}": "big small"}
    ruling = Ruling(ours, postgres=textual.get(str(wanted), ours), why="PostgresStore compares text (langgraph#7684)")
    await ruling.check(do, lambda: do.key_set(("docs",), filter=wanted))


async def test_a_filter_applies_before_the_limit(do: Do) -> None:
    for n in range(30):
        await do.put(("docs",), f"k{n:02}", {"third": n % 3 == 0})
    pages = [await do.keys(("docs",), filter={"third": True}, limit=4, offset=at) for at in (0, 4, 8)]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert sorted(key for page in pages for key in page) == [f"k{n:02}" for n in range(0, 30, 3)]


async def test_a_filter_reads_no_other_namespace(do: Do) -> None:
    await do.batch([PutOp(("docs", "a"), "k", {"n": 1}), PutOp(("docs", "b"), "k", {"n": 1}), PutOp(("docsx",), "k", {"n": 1})])
    found = await do.search(("docs",), filter={"n": 1})
    assert sorted(item.namespace for item in found) == [("docs", "a"), ("docs", "b")]
    either = {"$or": [{"n": 1}, {"n": 2}]}
    ruling = Ruling([("docs", "a")], memory=[], postgres=[], why=SERVER)
    assert [item.namespace for item in await do.search(("docs", "a"), filter=either)] == ruling.of(do)
