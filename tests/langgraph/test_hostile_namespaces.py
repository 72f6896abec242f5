"""Labels, keys, filters and queries that look like something else: a pattern, a query, another label."""

from __future__ import annotations

import random
import string
import unicodedata

import psycopg
import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp

from store_subjects import Do, Namespace, Opened, Raises, Ruling, indexed, navin_only, taken

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
LONG = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=10_000))

#: Namespaces of which no two may ever meet, grouped by the mistake that would join them.
TWINS: dict[str, list[Namespace]] = {
    "like-percent": [("a%",), ("ab",), ("a%b",), ("%",), ("%%",)],
    "like-underscore": [("john_doe",), ("john-doe",), ("johnXdoe",), ("_",), ("__",)],
    "glob": [("a*",), ("ab",), ("*",), ("**",), ("?",), ("[ab]",)],
    "backslash": [("a\\",), ("a\\\\",), ("a\\%",), ("a%",), ("\\_",)],
    "separators": [("a::b",), ("a", "b"), ("a:", ":b"), ("a/b",), ("a,b",), ("a|b",), ("a\x1eb",), ("a\x1e", "b")],
    "normal-forms": [(NFC,), (NFD,), ("cafe",), ("CAFÉ",)],
    "case": [("Tenant",), ("tenant",), ("TENANT",), ("\u0131",), ("i",), ("I",), ("ß",), ("ss",)],
    "numbers": [("t", "1"), ("t", "10"), ("t", "1", "x"), ("t", "01"), ("t", "\uff11")],
    "spaces": [("a",), ("a ",), (" a",), ("a\n",), ("a\t",), ("\u00a0a",), ("a\u200b",)],
    "arrays": [("{a,b}",), ("{a", "b}"), ("{}",), ("NULL",), ("null",), ("{NULL}",), ("[]",), ("-",)],
    "quotes": [("a'b",), ("a''b",), ('a"b',), ("a' or '1'='1",), ("a';--",), ('"; drop table',)],
    "regex": [("a+",), ("aa",), ("(a)",), ("a|b",), ("^a$",), ("a$",)],
    "params": [("%s",), ("$1",), (":a",), ("?",), ("%(a)s",), ("{0}",)],
    "emoji": [("👩‍👩‍👧",), ("👩",), ("👍",), ("👍🏽",)],
    "bidi": [("a\u202eb",), ("ab",), ("\u200fab",), ("\ufeffab",)],
}


@pytest.mark.parametrize("namespaces", TWINS.values(), ids=TWINS)
async def test_no_two_namespaces_meet(do: Do, namespaces: list[Namespace]) -> None:
    await do.batch([PutOp(namespace, "k", {"at": list(namespace)}) for namespace in namespaces])
    for namespace in namespaces:
        assert (await do.must_get(namespace, "k")).value == {"at": list(namespace)}
        below = [other for other in namespaces if other[: len(namespace)] == namespace]
        found = await do.search(namespace, limit=100)
        assert sorted(item.namespace for item in found) == sorted(below)
        assert sorted(tuple(item.value["at"]) for item in found) == sorted(below)
    assert sorted(await do.list_namespaces()) == sorted(namespaces)
    await do.delete(namespaces[0], "k")
    assert sorted(item.namespace for item in await do.search((), limit=100)) == sorted(namespaces[1:])


async def test_patterns_in_a_listing_are_text_but_for_the_star(do: Do) -> None:
    labels = ("a_c", "abc", "a%", "a\\c", "a+", "a*")
    await do.batch([PutOp((label, "x"), "k", {}) for label in labels])
    for label in labels:
        assert await do.list_namespaces(prefix=(label,)) == [(label, "x")]
        assert await do.list_namespaces(prefix=(label, "*")) == [(label, "x")]
    assert len(await do.list_namespaces(prefix=("*",), suffix=("x",))) == len(labels)


async def test_a_label_may_be_long(do: Do) -> None:
    twin = LONG[:-1] + "-"
    ruling = Ruling(True, postgres=Raises(psycopg.Error), why="a label has no limit of its own; PostgresStore indexes it whole")
    spaces: list[Namespace] = [(LONG,), (LONG, "x"), (twin,), ("short", LONG, LONG)]
    await ruling.check(do, lambda: taken(lambda: do.batch([PutOp(namespace, "k", {"n": 1}) for namespace in spaces])))
    if do.name == "postgres":
        return
    assert (await do.must_get((twin,), "k")).namespace == (twin,)
    assert sorted(item.namespace for item in await do.search((LONG,))) == [(LONG,), (LONG, "x")]
    assert await do.list_namespaces(prefix=("short", LONG)) == [("short", LONG, LONG)]
    assert await do.list_namespaces(suffix=(LONG,)) == sorted([(LONG,), ("short", LONG, LONG)])
    await do.delete((LONG,), "k")
    assert len(await do.search(())) == 3


async def test_a_namespace_may_be_deep(do: Do) -> None:
    deep = tuple(f"level{n}" for n in range(200))
    await do.put(deep, "k", {"n": 1})
    assert [item.namespace for item in await do.search(deep[:150])] == [deep]
    assert await do.list_namespaces(max_depth=3) == [deep[:3]]
    assert await do.list_namespaces(suffix=deep[-2:]) == [deep]


IDS = ["u,1", 'say "hi"', "o'neill", "line\nbreak", "👩‍👩‍👧", "a=b&c=d", "{u}", "/etc/passwd", "u@host", "*", "%", "-", "NULL"]


@pytest.mark.parametrize("scope", ["user", "session"])
async def test_an_id_may_hold_anything(do: Do, scope: str, subtests: pytest.Subtests) -> None:
    await do.batch([PutOp((scope, id_, "notes"), "k", {"id": id_}) for id_ in IDS])
    for id_ in IDS:
        with subtests.test(repr(id_)):
            assert (await do.must_get((scope, id_, "notes"), "k")).value == {"id": id_}
            assert [item.value["id"] for item in await do.search((scope, id_))] == [id_]
            assert await do.list_namespaces(prefix=(scope,), suffix=(id_, "notes"))
    assert len(await do.search((scope,), limit=100)) == len(IDS)
    assert sorted(await do.list_namespaces()) == sorted((scope, id_, "notes") for id_ in IDS)


@navin_only
@pytest.mark.parametrize("label", ["a\x00b", "a\x1fb", "\x1f", "\x00"], ids=repr)
async def test_nul_and_the_separator_are_refused_in_an_id(do: Do, label: str) -> None:
    for namespace in [("user", label), ("session", "s", label), ("notes", label)]:
        with pytest.raises(InvalidNamespaceError):
            await do.put(namespace, "k", {"n": 1})
        with pytest.raises(InvalidNamespaceError):
            await do.search(namespace)
    assert await do.list_namespaces() == []


async def test_a_surrogate_is_no_label(do: Do) -> None:
    ruling = Ruling(Raises(InvalidNamespaceError), memory=True, postgres=Raises(UnicodeEncodeError), why="half a character is no text")
    await ruling.check(do, lambda: taken(lambda: do.put(("a\ud800b",), "k", {"n": 1})))


# -- keys

KEYS = [
    *("", " ", "a,b", "my-doc.md#0", "a'b", 'a"b', "a\nb", "%", "_", "*", "\\", "\x1f", "👍"),
    *(NFC, NFD, "a.b", "x" * 1024, "é" * 512, "NULL", "{a}"),
]


async def test_any_key_round_trips(do: Do) -> None:
    await do.batch([PutOp(("docs",), key, {"key": key}) for key in KEYS])
    for key in KEYS:
        item = await do.must_get(("docs",), key)
        assert (item.key, item.value) == (key, {"key": key})
    assert sorted(await do.keys(("docs",), limit=100)) == sorted(KEYS)
    await do.batch([PutOp(("docs",), key, None) for key in KEYS])
    assert await do.search(()) == []


async def test_a_key_has_a_limit(do: Do, subtests: pytest.Subtests) -> None:
    ruling = Ruling(Raises(ValueError, ("key",)), memory=True, postgres=True, why="1,024 bytes; PostgreSQL can't index more than a few kB")
    for key in ("x" * 1025, "é" * 513):
        with subtests.test(key[0]):
            await ruling.check(do, lambda key=key: taken(lambda: do.put(("docs",), key, {"n": 1})))  # type: ignore[misc]
    assert "x" * 100 not in str(await _error_of_a_long_key(do))


async def _error_of_a_long_key(do: Do) -> Exception | None:
    try:
        await do.put(("docs",), "x" * 5_000, {"n": 1})
    except ValueError as error:
        return error
    return None


async def test_nul_and_surrogates_are_no_keys(do: Do, subtests: pytest.Subtests) -> None:
    for key, postgres in (("a\x00b", psycopg.DataError), ("a\udfffb", UnicodeEncodeError)):
        with subtests.test(repr(key)):
            ruling = Ruling(Raises(ValueError, ("key",)), memory=True, postgres=Raises(postgres), why="PostgreSQL's text can't hold it")
            await ruling.check(do, lambda key=key: taken(lambda: do.put(("docs",), key, {"n": 1})))  # type: ignore[misc]
            raw = Ruling(Raises(ValueError, ("key",)), memory=True, postgres=Raises(postgres), why="as above")
            await raw.check(do, lambda key=key: taken(lambda: do.batch([GetOp(("docs",), key)])))  # type: ignore[misc]


# -- filters and queries

FIELDS = [
    *("a' or '1'='1", '"; drop table', "'; drop table items; --", "a'b", 'a"b', "%s", "a$1"),
    *("value", "a->b", "a\\b", "*", ".a", "é", "", " "),
]


async def test_a_hostile_filter_key_is_a_key(do: Do, subtests: pytest.Subtests) -> None:
    await do.put(("docs",), "plain", {"n": 1})
    for field in FIELDS:
        with subtests.test(field):
            assert await do.keys(("docs",), filter={field: 1}) == []
            assert await do.keys(("docs",), filter={field: {"$eq": 1}}) == []
            await do.put(("docs",), "own", {field: 1})
            assert await do.keys(("docs",), filter={field: 1}) == ["own"]
            await do.delete(("docs",), "own")
    assert await do.keys(("docs",)) == ["plain"]


async def test_a_hostile_filter_value_is_a_value(do: Do, subtests: pytest.Subtests) -> None:
    await do.put(("docs",), "plain", {"s": "x"})
    for value in FIELDS:
        with subtests.test(value):
            await do.put(("docs",), "own", {"s": value})
            assert await do.keys(("docs",), filter={"s": value}) == ["own"]
            assert await do.keys(("docs",), filter={"s": {"$ne": value}}) == ["plain"]


QUERIES = [
    *("'; drop table items; --", "& | ! ( )", "a & | b", "\\", "'", '"', "*", "%", ":*", "<->", "!!"),
    *("a' or '1'='1", "\n", "👍", "the", "-", "\ufffd", "x" * 20_000),
]


async def test_a_hostile_query_is_text(do: Do, subtests: pytest.Subtests) -> None:
    await do.put(("docs",), "k", {"text": "submarine"})
    for query in QUERIES:
        with subtests.test(query[:20]):
            ruling = Ruling([], memory=["k"], postgres=["k"], why="without an index a query searches words; LangGraph's stores ignore it")
            await ruling.check(do, lambda query=query: do.keys(("docs",), query=query))  # type: ignore[misc]
    assert await do.keys(("docs",), query="submarine") == ["k"]


async def test_a_hostile_query_is_text_for_vectors_too(opened: Opened, subtests: pytest.Subtests) -> None:
    do = await opened(index=indexed("text"))
    await do.put(("docs",), "k", {"text": "submarine"})
    for query in QUERIES:
        with subtests.test(query[:20]):
            assert await do.keys(("docs",), query=query) == ["k"]


async def test_nul_in_a_filter_or_query_is_harmless(do: Do) -> None:
    await do.put(("docs",), "k", {"text": "submarine"})
    why = "it can't be stored, so it can't be meant"
    by_filter = Ruling(Raises(ValueError, ("filter",)), memory=[], postgres=Raises(psycopg.DataError), why=why)
    await by_filter.check(do, lambda: do.keys(("docs",), filter={"text": "a\x00b"}))
    by_query = Ruling(Raises(ValueError, ("query",)), memory=["k"], postgres=["k"], why=why)
    await by_query.check(do, lambda: do.keys(("docs",), query="a\x00b"))
