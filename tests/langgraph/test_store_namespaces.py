"""Namespaces: borders between labels, what a listing shows, and what is refused on every verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from store_subjects import Do, Namespace, Raises, Ruling, navin_only, taken

TREE: list[Namespace] = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("malice",),
    ("users", "alice"),
    ("users", "malice"),
    ("usersx", "alice"),
]


async def _plant(do: Do, namespaces: list[Namespace]) -> None:
    await do.batch([PutOp(namespace, "k", {"at": "/".join(namespace)}) for namespace in namespaces])


async def _found(do: Do, prefix: Namespace) -> list[Namespace]:
    return sorted(item.namespace for item in await do.search(prefix, limit=100))


async def test_a_prefix_ends_at_a_label(do: Do) -> None:
    await _plant(do, [("foo",), ("foo", "bar"), ("foobar",), ("foobar", "baz"), ("barfoo",)])
    assert await _found(do, ("foo",)) == [("foo",), ("foo", "bar")]
    assert await _found(do, ("foo", "bar")) == [("foo", "bar")]
    assert await _found(do, ("foo", "ba")) == []
    assert await _found(do, ("fo",)) == []
    assert await _found(do, ("bar",)) == []


async def test_an_empty_prefix_finds_everything(do: Do) -> None:
    everywhere: list[Namespace] = [("agent", "default"), ("session", "s-1"), ("users", "u"), ("user", "u-1", "likes"), ("user", "u-2")]
    await _plant(do, everywhere)
    assert await _found(do, ()) == sorted(everywhere)
    assert sorted(await do.list_namespaces()) == sorted(everywhere)
    assert await _found(do, ("user",)) == [("user", "u-1", "likes"), ("user", "u-2")]
    assert await do.list_namespaces(prefix=("user",), max_depth=1) == [("user",)]


async def test_everything_can_be_paged_across_scopes(do: Do) -> None:
    everywhere: list[Namespace] = [(root, f"n{n}") for root in ("user", "session", "notes") for n in range(4)]
    for namespace in everywhere:
        await do.put(namespace, "k", {"n": 1})
    pages = [[item.namespace for item in await do.search((), limit=5, offset=at)] for at in (0, 5, 10)]
    assert [len(page) for page in pages] == [5, 5, 2]
    assert sorted(namespace for page in pages for namespace in page) == sorted(everywhere)
    listed = [await do.list_namespaces(limit=5, offset=at) for at in (0, 5, 10)]
    assert [namespace for page in listed for namespace in page] == sorted(everywhere)


async def test_the_same_key_in_two_namespaces_is_two_items(do: Do) -> None:
    await _plant(do, [("a",), ("a", "b"), ("b",)])
    await do.delete(("a",), "k")
    assert await do.get(("a",), "k") is None
    assert (await do.must_get(("a", "b"), "k")).value == {"at": "a/b"}
    assert (await do.must_get(("b",), "k")).value == {"at": "b"}


LISTINGS: list[tuple[dict[str, Any], list[Namespace]]] = [
    ({}, TREE),
    ({"prefix": ("a", "b")}, TREE[:4]),
    ({"prefix": ("a", "b", "d", "e")}, TREE[1:2]),
    ({"prefix": ("users",)}, TREE[7:9]),
    ({"prefix": ("nothing",)}, []),
    ({"suffix": ("f",)}, TREE[3:6]),
    ({"suffix": ("b", "f")}, TREE[3:4]),
    ({"suffix": ("alice",)}, [TREE[7], TREE[9]]),
    ({"suffix": ("malice",)}, [TREE[6], TREE[8]]),
    ({"prefix": ("a",), "suffix": ("f",)}, TREE[3:5]),
    ({"prefix": ("a", "*", "f")}, TREE[3:5]),
    ({"prefix": ("*", "alice")}, [TREE[7], TREE[9]]),
    ({"prefix": ("*", "*", "*", "*")}, TREE[1:3]),
    ({"suffix": ("*", "f")}, TREE[3:6]),
    ({"suffix": ("d", "*")}, TREE[1:3]),
    ({"prefix": ("a", "*"), "suffix": ("*", "i")}, TREE[2:3]),
    ({"max_depth": 1}, [("a",), ("b",), ("malice",), ("users",), ("usersx",)]),
    ({"prefix": ("a",), "max_depth": 2}, [("a", "b"), ("a", "c")]),
    ({"prefix": ("a", "b"), "max_depth": 3}, [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]),
    ({"suffix": ("f",), "max_depth": 2}, [("a", "b"), ("a", "c"), ("b", "a")]),
    ({"suffix": ("d",)}, []),
    ({"max_depth": 9}, TREE),
    ({"prefix": (), "suffix": ()}, TREE),
]


async def test_a_listing_shows(do: Do, subtests: pytest.Subtests) -> None:
    await _plant(do, TREE)
    for wanted, expected in LISTINGS:
        with subtests.test(str(wanted)):
            assert await do.list_namespaces(**wanted) == sorted(expected)


async def test_a_listing_is_paged_in_order(do: Do) -> None:
    await _plant(do, [(f"n{n:02}", "deep") for n in range(23)])
    pages = [await do.list_namespaces(limit=10, offset=at) for at in (0, 10, 20)]
    assert [namespace for page in pages for namespace in page] == [(f"n{n:02}", "deep") for n in range(23)]
    tops = [await do.list_namespaces(limit=10, offset=at, max_depth=1) for at in (0, 10, 20)]
    assert [namespace for page in tops for namespace in page] == [(f"n{n:02}",) for n in range(23)]
    assert await do.list_namespaces(limit=0) == []


async def test_a_listing_shows_a_namespace_once(do: Do) -> None:
    await do.batch([PutOp(("a",), f"k{n}", {"n": n}) for n in range(5)])
    assert await do.list_namespaces() == [("a",)]


async def test_an_empty_store_lists_nothing(do: Do) -> None:
    assert await do.list_namespaces() == []
    assert await do.search(()) == []


# -- what is refused

BAD_LABELS: list[tuple[str, Any]] = [("empty", ""), ("dot", "a.b"), ("nul", "a\x00b"), ("number", 7), ("none", None), ("bytes", b"a")]


def _verbs(do: Do, namespace: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "put": lambda: do.put(namespace, "k", {"n": 1}),
        "get": lambda: do.get(namespace, "k"),
        "delete": lambda: do.delete(namespace, "k"),
        "search": lambda: do.search(namespace),
        "prefix": lambda: do.list_namespaces(prefix=namespace),
        "suffix": lambda: do.list_namespaces(suffix=namespace),
    }


def _ops(namespace: Any) -> dict[str, Any]:
    return {
        "put": PutOp(namespace, "k", {"n": 1}),
        "get": GetOp(namespace, "k"),
        "delete": PutOp(namespace, "k", None),
        "search": SearchOp(namespace),
        "prefix": ListNamespacesOp((MatchCondition("prefix", namespace),)),
        "suffix": ListNamespacesOp((MatchCondition("suffix", namespace),)),
    }


async def test_a_bad_label_is_refused_on_every_verb(do: Do, subtests: pytest.Subtests) -> None:
    for name, label in BAD_LABELS:
        for namespace in [(label,), ("a", label), ("a", label, "c")]:
            for verb, attempt in _verbs(do, namespace).items():
                with subtests.test(f"{verb} {name}"), pytest.raises(InvalidNamespaceError):
                    await attempt()
    assert await do.list_namespaces() == []


async def test_a_bad_label_is_refused_in_a_raw_batch(do: Do, subtests: pytest.Subtests) -> None:
    ruling = Ruling(Raises(InvalidNamespaceError), memory=True, why="raw batches are checked like verbs; memory checks none")
    for name, label in BAD_LABELS:
        for verb, op in _ops(("a", label)).items():
            with subtests.test(f"{verb} {name}"):
                await ruling.check(do, lambda op=op: taken(lambda: do.batch([op])))  # type: ignore[misc]


async def test_our_separator_is_refused(do: Do, subtests: pytest.Subtests) -> None:
    why = "U+001F separates labels in our rows; LangGraph's stores take it for text"
    ruling = Ruling(Raises(InvalidNamespaceError), memory=True, postgres=True, why=why)
    for verb, attempt in _verbs(do, ("a\x1fb",)).items():
        with subtests.test(verb):
            await ruling.check(do, lambda attempt=attempt: taken(attempt))  # type: ignore[misc]
    for verb, op in _ops(("c", "a\x1fb")).items():
        with subtests.test(f"raw {verb}"):
            await ruling.check(do, lambda op=op: taken(lambda: do.batch([op])))  # type: ignore[misc]


async def test_a_bare_string_is_no_namespace(do: Do, subtests: pytest.Subtests) -> None:
    why = "'ab' isn't ('a', 'b'): LangGraph's stores take it for its letters"
    ruling = Ruling(Raises(InvalidNamespaceError), memory=True, postgres=True, why=why)
    for verb, attempt in _verbs(do, "ab").items():
        with subtests.test(verb):
            await ruling.check(do, lambda attempt=attempt: taken(attempt))  # type: ignore[misc]


@navin_only
async def test_only_a_tuple_or_a_list_is_a_namespace(do: Do, subtests: pytest.Subtests) -> None:
    for namespace in [7, None, {"a": 1}, b"ab", frozenset({"a"})]:
        for verb, op in _ops(namespace).items():
            with subtests.test(f"{verb} {namespace!r}"), pytest.raises(InvalidNamespaceError):
                await do.batch([op])


async def test_a_list_is_taken_for_a_tuple(do: Do) -> None:
    why = "other languages send lists (langgraph#5889)"
    ruling = Ruling(None, memory=Raises(TypeError), postgres=Raises(TypeError), why=why)
    await ruling.check(do, lambda: do.put(["a", "b"], "k", {"n": 1}))
    if do.name == "navin":
        assert (await do.must_get(("a", "b"), "k")).namespace == ("a", "b")
        assert (await do.must_get(["a", "b"], "k")).namespace == ("a", "b")


async def test_the_root_langgraph_cannot_be_written(do: Do) -> None:
    with pytest.raises(InvalidNamespaceError, match="langgraph"):
        await do.put(("langgraph", "x"), "k", {"n": 1})
    await do.put(("mine", "langgraph"), "k", {"n": 1})
    assert await do.search(("langgraph",)) == []
    why = "raw batches are checked like verbs; LangGraph's stores check labels at most"
    raw = Ruling(Raises(InvalidNamespaceError, ("langgraph",)), memory=[None], postgres=[None], why=why)
    await raw.check(do, lambda: do.batch([PutOp(("langgraph",), "k", {"n": 1})]))


async def test_an_empty_namespace_holds_no_item(do: Do) -> None:
    with pytest.raises(InvalidNamespaceError):
        await do.put((), "k", {"n": 1})
    why = "nothing can be stored there: LangGraph's stores check it on put only"
    for verb in ("get", "delete"):
        await Ruling(Raises(InvalidNamespaceError), memory=None, postgres=None, why=why).check(do, _verbs(do, ())[verb])
    raw = Ruling(Raises(InvalidNamespaceError), memory=[None], postgres=[None], why=why)
    await raw.check(do, lambda: do.batch([PutOp((), "k", {"n": 1})]))
