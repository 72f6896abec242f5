"""Put, get, delete and batch: the same body on LangGraph's stores and on ours."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, Item, ListNamespacesOp, PutOp, SearchItem, SearchOp

from store_subjects import Do, Raises, Ruling, navin_only

DOCS = ("docs",)


async def test_put_then_get_returns_the_value(do: Do) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    await do.put(("docs", "a"), "k", {"title": "one", "nested": {"n": [1, {"x": None}]}})
    item = await do.must_get(("docs", "a"), "k")
    assert type(item) is Item
    assert (item.namespace, item.key) == (("docs", "a"), "k")
    assert item.value == {"title": "one", "nested": {"n": [1, {"x": None}]}}
    assert item.created_at.tzinfo is not None
    assert before < item.created_at <= item.updated_at < datetime.now(UTC) + timedelta(minutes=1)


async def test_a_missing_key_is_none(do: Do) -> None:
    await do.put(DOCS, "k", {"n": 1})
    assert await do.get(DOCS, "other") is None
    assert await do.get(("docs", "deeper"), "k") is None
    assert await do.get(("elsewhere",), "k") is None


async def test_put_replaces_the_whole_value(do: Do) -> None:
    await do.put(DOCS, "k", {"a": 1, "b": 2})
    await do.put(DOCS, "k", {"a": 3})
    assert (await do.must_get(DOCS, "k")).value == {"a": 3}
    assert await do.keys(DOCS) == ["k"]


async def test_an_empty_value_is_a_value(do: Do) -> None:
    await do.put(DOCS, "k", {})
    assert (await do.must_get(DOCS, "k")).value == {}


async def test_update_keeps_created_at(do: Do) -> None:
    await do.put(DOCS, "k", {"v": 1})
    first = await do.must_get(DOCS, "k")
    await do.put(DOCS, "k", {"v": 2})
    second = await do.must_get(DOCS, "k")
    assert second.updated_at > first.updated_at
    kept = Ruling(True, memory=False, why="an update is not a birth; memory sets both times on every put")
    assert (second.created_at == first.created_at) is kept.of(do)


async def test_delete_removes_one_item(do: Do) -> None:
    await do.put(DOCS, "k", {"n": 1})
    await do.put(DOCS, "other", {"n": 2})
    await do.delete(DOCS, "k")
    assert await do.get(DOCS, "k") is None
    assert await do.keys(DOCS) == ["other"]


async def test_delete_of_nothing_is_silent(do: Do) -> None:
    await do.delete(DOCS, "never")
    await do.put(DOCS, "k", {"n": 1})
    await do.put(DOCS, "k", None)
    await do.put(DOCS, "k", None)
    assert await do.get(DOCS, "k") is None


async def test_an_item_put_again_after_delete_is_new(do: Do) -> None:
    await do.put(DOCS, "k", {"v": 1})
    first = await do.must_get(DOCS, "k")
    await do.delete(DOCS, "k")
    await do.put(DOCS, "k", {"v": 2})
    second = await do.must_get(DOCS, "k")
    assert second.value == {"v": 2}
    assert second.created_at > first.created_at


async def test_a_namespace_lives_as_long_as_its_items(do: Do) -> None:
    await do.get(("ghost",), "k")
    await do.put(("lived",), "k", {"n": 1})
    await do.delete(("lived",), "k")
    ruling = Ruling([], memory=[("ghost",), ("lived",)], why="reading creates nothing and the last delete leaves nothing (langgraph#8734)")
    await ruling.check(do, do.list_namespaces)


async def test_the_caller_owns_what_it_gave_and_got(do: Do) -> None:
    value: dict[str, Any] = {"inner": {"n": 1}}
    await do.put(DOCS, "k", value)
    value["inner"]["n"] = 2
    ruling = Ruling({"inner": {"n": 1}}, memory={"inner": {"n": 2}}, why="memory keeps live references: a change after put is stored")
    assert (await do.must_get(DOCS, "k")).value == ruling.of(do)
    (await do.must_get(DOCS, "k")).value["inner"]["n"] = 3
    ruling = Ruling({"inner": {"n": 1}}, memory={"inner": {"n": 3}}, why="memory hands out live references")
    assert (await do.must_get(DOCS, "k")).value == ruling.of(do)


async def test_search_without_a_query_lists_newest_first(do: Do) -> None:
    for key in "abc":
        await do.put(DOCS, key, {"v": 1})
    newest = Ruling(["c", "b", "a"], memory=["a", "b", "c"], why="the newest memory matters most; memory lists in order of insertion")
    await newest.check(do, lambda: do.keys(DOCS))
    await do.put(DOCS, "a", {"v": 2})
    changed = Ruling(["a", "c", "b"], memory=["a", "b", "c"], why="newest means last changed, as in PostgresStore")
    await changed.check(do, lambda: do.keys(DOCS))
    found = await do.search(DOCS)
    assert [(type(item), item.score) for item in found] == [(SearchItem, None)] * 3


async def test_search_has_a_limit_of_ten_and_an_offset(do: Do) -> None:
    await do.batch([PutOp(DOCS, f"k{n:02}", {"n": n}) for n in range(13)])
    assert len(await do.search(DOCS)) == 10
    assert len(await do.search(DOCS, offset=10)) == 3
    assert await do.search(DOCS, offset=13) == []
    assert await do.search(DOCS, limit=0) == []
    assert len(await do.search(DOCS, limit=1000)) == 13


async def test_pages_are_whole_and_disjoint(do: Do) -> None:
    await do.batch([PutOp(("docs", str(n % 3)), f"k{n:02}", {"n": n}) for n in range(25)])
    pages = [await do.keys(DOCS, limit=4, offset=at) for at in range(0, 28, 4)]
    assert [len(page) for page in pages] == [4, 4, 4, 4, 4, 4, 1]
    whole = Ruling(True, postgres=False, why="PostgresStore orders by a time that all rows of a batch share: pages repeat and miss items")
    seen = [key for page in pages for key in page]
    assert (sorted(seen) == [f"k{n:02}" for n in range(25)]) is whole.of(do)
    assert (seen == await do.keys(DOCS, limit=100)) is whole.of(do)


@pytest.mark.parametrize(
    ("bounds", "memory"),
    [({"limit": -1}, ["a"]), ({"offset": -1}, ["b"]), ({"limit": -5, "offset": 1}, [])],
    ids=["limit", "offset", "both"],
)
async def test_negative_bounds_are_refused(do: Do, bounds: dict[str, int], memory: list[str]) -> None:
    await do.batch([PutOp(DOCS, "a", {}), PutOp(DOCS, "b", {})])
    named = tuple(bounds)[:1]
    ruling = Ruling(
        Raises(ValueError, named),
        memory=memory,
        postgres=Raises(psycopg.Error),
        why="a mistake in a page is said before it is asked for; memory slices from the end (langgraph#8696)",
    )
    await ruling.check(do, lambda: do.keys(DOCS, **bounds))


@pytest.mark.parametrize("bound", ["limit", "offset"])
async def test_negative_bounds_of_a_listing_are_refused(do: Do, bound: str) -> None:
    await do.batch([PutOp(("a",), "k", {}), PutOp(("b",), "k", {})])
    memory = {"limit": [("a",)], "offset": [("b",)]}[bound]
    ruling = Ruling(Raises(ValueError, (bound,)), memory=memory, postgres=Raises(psycopg.Error), why="as for search")
    await ruling.check(do, lambda: do.list_namespaces(**{bound: -1}))


# -- batches


async def test_results_keep_the_order_of_the_ops(do: Do) -> None:
    await do.batch([PutOp(DOCS, "a", {"n": 1}), PutOp(("other",), "b", {"n": 2})])
    results: list[Any] = await do.batch(
        [
            GetOp(("other",), "b"),
            PutOp(DOCS, "new", {"n": 3}),
            SearchOp(DOCS, filter={"n": 1}),
            GetOp(DOCS, "nothing"),
            ListNamespacesOp(),
            GetOp(DOCS, "a"),
            SearchOp(("nowhere",)),
            GetOp(DOCS, "a"),
        ]
    )
    assert results[0].value == {"n": 2}
    assert results[1] is None
    assert [item.key for item in results[2]] == ["a"]
    assert results[3] is None
    assert sorted(results[4]) == [DOCS, ("other",)]
    assert results[5].value == {"n": 1} == results[7].value
    assert results[6] == []


async def test_reads_of_a_batch_see_the_state_before_its_writes(do: Do) -> None:
    await do.put(DOCS, "k", {"v": "old"})
    results: list[Any] = await do.batch(
        [
            PutOp(DOCS, "k", {"v": "new"}),
            PutOp(("fresh",), "k", {"v": "new"}),
            GetOp(DOCS, "k"),
            GetOp(("fresh",), "k"),
            SearchOp(()),
            ListNamespacesOp(),
        ]
    )
    assert results[2].value == {"v": "old"}
    assert results[3] is None
    assert [item.value for item in results[4]] == [{"v": "old"}]
    fresh_read = Ruling([DOCS], memory=[DOCS, ("fresh",)], why="memory makes a namespace of every key it looks up (langgraph#8734)")
    assert results[5] == fresh_read.of(do)
    assert (await do.must_get(DOCS, "k")).value == {"v": "new"}


@pytest.mark.parametrize(
    ("values", "left"),
    [([{"v": 1}, {"v": 2}], {"v": 2}), ([{"v": 1}, None], None), ([None, {"v": 3}], {"v": 3}), ([{"v": 1}, None, {"v": 4}], {"v": 4})],
    ids=["put-put", "put-delete", "delete-put", "put-delete-put"],
)
async def test_the_last_write_to_a_key_wins(do: Do, values: list[Any], left: Any) -> None:
    await do.put(DOCS, "k", {"v": 0})
    await do.batch([PutOp(DOCS, "k", value) for value in values])
    item = await do.get(DOCS, "k")
    assert (item.value if item else None) == left


async def test_a_batch_may_be_empty_or_a_generator(do: Do) -> None:
    assert await do.batch([]) == []
    assert await do.batch(PutOp(DOCS, f"k{n}", {"n": n}) for n in range(3)) == [None, None, None]
    found: list[Any] = await do.batch(GetOp(DOCS, f"k{n}") for n in range(3))
    assert [item.value["n"] for item in found] == [0, 1, 2]


async def test_a_batch_is_written_whole_or_not_at_all(do: Do) -> None:
    ops = [PutOp(DOCS, "good", {"n": 1}), PutOp(("bad.label",), "k", {"n": 2})]
    ruling = Ruling(Raises(InvalidNamespaceError), memory=[None, None], why="raw batches are checked like verbs; memory checks none")
    await ruling.check(do, lambda: do.batch(ops))
    left = Ruling([], memory=["good"], why="as above: memory refused nothing")
    await left.check(do, lambda: do.keys(DOCS))


async def test_an_unknown_op_is_refused(do: Do) -> None:
    ruling = Ruling(Raises(ValueError), postgres=[None], why="an op that nobody carries out must not look done; PostgresStore ignores it")
    await ruling.check(do, lambda: do.batch([("not", "an", "op")]))  # type: ignore[list-item]


async def test_a_batch_has_no_size_limit(do: Do) -> None:
    many = 17_000
    ruling = Ruling(
        [None] * many,
        postgres=Raises(psycopg.OperationalError, ("65535",)),
        why="one document carries a batch; PostgresStore spends a parameter on each of its fields",
    )
    await ruling.check(do, lambda: do.batch([PutOp(DOCS, f"k{n}", {"n": n}) for n in range(many)]))
    stored = Ruling(["k0", f"k{many - 1}"], postgres=[], why="as above: nothing was written")
    found: list[Any] = await do.batch([GetOp(DOCS, "k0"), GetOp(DOCS, f"k{many - 1}"), GetOp(DOCS, f"k{many}")])
    assert [item.key for item in found if item] == stored.of(do)


@navin_only
@pytest.mark.timeout(120)
async def test_a_large_update_after_many_small_ones(do: Do) -> None:
    # Small batches leave their plans with the connection; a plan that compares each row with each never ends here.
    for n in range(12):
        await do.put(DOCS, "k0", {"n": n})
    for round_ in range(2):
        await do.batch([PutOp(DOCS, f"k{n}", {"round": round_}) for n in range(17_000)])
    assert await do.keys(DOCS, filter={"round": 0}) == []
    assert (await do.must_get(DOCS, "k16999")).value == {"round": 1}


@navin_only
async def test_crossing_batches_never_deadlock(do: Do) -> None:
    keys = [f"k{n}" for n in range(20)]
    orders = [random.Random(seed).sample(keys, len(keys)) for seed in range(8)]

    async def write(order: list[str]) -> None:
        ops = [PutOp(DOCS, key, {"by": order[0]}) for key in order]
        await (asyncio.to_thread(do.store.batch, ops) if do.colour == "sync" else do.store.abatch(ops))

    for _ in range(5):
        await asyncio.gather(*(write(order) for order in orders))
    winners = {str(item.value["by"]) for item in await do.search(DOCS, limit=50)}
    assert len(winners) == 1, "a batch was written in part"


async def test_one_refused_call_leaves_its_neighbours_alone(do: Do) -> None:
    async def attempt(verb: str) -> Any:
        if verb == "bad":
            return await do.search(DOCS, filter={"n": {"$regex": "x"}})
        return await do.put(DOCS, verb, {"n": 1})

    await do.put(DOCS, "first", {"n": 1})
    outcomes = await asyncio.gather(*(attempt(verb) for verb in ("a", "bad", "b")), return_exceptions=True)
    assert isinstance(outcomes[1], ValueError)
    shared = do.name == "postgres" and do.colour == "async"
    stored = Ruling("a b first", postgres="first" if shared else "a b first", why="AsyncPostgresStore fails a whole tick for one bad op")
    await stored.check(do, lambda: do.key_set(DOCS))
