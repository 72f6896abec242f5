"""Expiry, in minutes: what dies when, what keeps it alive, and who sees the dead."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langgraph.store.base import PutOp

from store_subjects import Do, Opened, Raises, Ruling, eventually, timed, until_gone

DOCS = ("docs",)
#: 0.6 seconds: enough to be read once, soon over.
SHORT = 0.01
#: 1.8 seconds: long enough to be refreshed many times on a slow machine.
LONGER = 0.03

LATE = "expired is gone at once; PostgresStore shows it until a sweep"
INTEGER = "PostgresStore keeps whole minutes: a fraction becomes 0, and the first refresh kills the item"


@pytest.mark.parametrize("subject", ["memory-sync", "memory-async", "postgres-sync", "navin-sync", "navin-async"], indirect=True)
async def test_a_store_says_whether_it_knows_expiry(do: Do) -> None:
    supported = Ruling(True, memory=False, why="InMemoryStore knows no expiry")
    assert do.store.supports_ttl is supported.of(do)
    refused = Ruling(None, memory=Raises(NotImplementedError, ("TTL",)), why="as above")
    await refused.check(do, lambda: do.put(DOCS, "k", {}, ttl=1))


@timed
async def test_expired_is_gone_for_every_reader(opened: Opened) -> None:
    do, watch = await opened(), await opened(ttl={"omit_expired": True})
    await do.put(DOCS, "kept", {"n": 1})
    await do.batch([PutOp(("docs", "brief"), "k", {"n": 1}, ttl=SHORT), PutOp(DOCS, "brief", {"n": 1}, ttl=SHORT)])
    assert await do.key_set(DOCS, refresh_ttl=False) == "brief k kept"
    await until_gone(watch, DOCS, "brief")
    await until_gone(watch, ("docs", "brief"), "k")

    async def got() -> bool:
        return await do.get(DOCS, "brief", refresh_ttl=False) is not None

    await Ruling(False, postgres=True, why=LATE).check(do, got)
    await Ruling("kept", postgres="brief k kept", why=LATE).check(do, lambda: do.key_set(DOCS, refresh_ttl=False))
    filtered = Ruling("kept", postgres="brief k kept", why=LATE)
    await filtered.check(do, lambda: do.key_set(DOCS, filter={"n": 1}, refresh_ttl=False))
    await Ruling([DOCS], postgres=[DOCS, ("docs", "brief")], why=LATE).check(do, do.list_namespaces)


@timed
async def test_a_refresh_revives_nothing(opened: Opened) -> None:
    do, watch = await opened(), await opened(ttl={"omit_expired": True})
    await do.put(DOCS, "k", {"n": 1}, ttl=SHORT)
    await until_gone(watch, DOCS, "k")

    async def refreshed() -> list[Any]:
        item = await do.get(DOCS, "k", refresh_ttl=True)
        return [item is None, await do.keys(DOCS, refresh_ttl=True)]

    ruling = Ruling([True, []], postgres=[False, ["k"]], why="a read must not bring back the dead (langgraph#8354)")
    await ruling.check(do, refreshed)


@timed
async def test_pages_are_filled_from_the_living(opened: Opened) -> None:
    do, watch = await opened(), await opened(ttl={"omit_expired": True})
    await do.put(DOCS, "old1", {})
    await do.put(DOCS, "old2", {})
    await do.batch([PutOp(DOCS, f"brief{n}", {}, ttl=SHORT) for n in range(3)])
    await until_gone(watch, DOCS, "brief2")
    ruling = Ruling(["old2", "old1"], postgres=2, why=LATE)

    async def page() -> Any:
        found = await do.keys(DOCS, limit=2, refresh_ttl=False)
        return found if do.name == "navin" else sum(key.startswith("brief") for key in found)

    await ruling.check(do, page)


@timed
async def test_a_read_keeps_alive(opened: Opened) -> None:
    do = await opened(ttl={"omit_expired": True})
    frozen = await opened(ttl={"omit_expired": True, "refresh_on_read": False})
    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "got": lambda: do.get(("got",), "k"),
        "listed": lambda: do.search(("listed",)),
        "searched": lambda: do.search(("searched",), query="apple"),
        "asked": lambda: frozen.get(("asked",), "k", refresh_ttl=True),
        "unasked": lambda: do.get(("unasked",), "k", refresh_ttl=False),
        "frozen": lambda: frozen.search(("frozen",)),
    }
    await do.batch([PutOp((name,), "k", {"text": "apple"}, ttl=LONGER) for name in reads])

    async def the_unread_are_gone() -> bool:
        outcomes = {name: await read() for name, read in reads.items()}
        return not outcomes["unasked"] and not outcomes["frozen"]

    await eventually(the_unread_are_gone)
    alive = Ruling(["asked", "got", "listed", "searched"], postgres=[], why=INTEGER)
    assert sorted(item.namespace[0] for item in await do.search(())) == alive.of(do)


@timed
async def test_a_read_without_refresh_keeps_nothing_alive(opened: Opened) -> None:
    do = await opened(ttl={"omit_expired": True, "refresh_on_read": False})
    await do.put(DOCS, "k", {"n": 1}, ttl=SHORT)

    async def gone() -> bool:
        await do.search(DOCS)
        return await do.get(DOCS, "k") is None

    await eventually(gone)
    assert await do.keys(DOCS) == []


@timed
async def test_the_default_applies_unless_a_put_says_otherwise(opened: Opened) -> None:
    do = await opened(ttl={"omit_expired": True, "default_ttl": SHORT})
    await do.put(DOCS, "default", {})
    await do.put(DOCS, "forever", {}, ttl=None)
    await do.put(DOCS, "longer", {}, ttl=60)
    await until_gone(do, DOCS, "default")
    assert await do.key_set(DOCS) == "forever longer"


@timed
async def test_each_put_sets_the_expiry_anew(opened: Opened) -> None:
    do = await opened(ttl={"omit_expired": True})
    await do.put(DOCS, "freed", {"v": 1}, ttl=SHORT)
    await do.put(DOCS, "freed", {"v": 2})
    await do.put(DOCS, "bound", {"v": 1})
    await do.put(DOCS, "bound", {"v": 2}, ttl=SHORT)
    await until_gone(do, DOCS, "bound")
    assert await do.keys(DOCS) == ["freed"]


@timed
async def test_a_key_is_free_once_its_item_expired(opened: Opened) -> None:
    do = await opened(ttl={"omit_expired": True})
    await do.put(DOCS, "k", {"v": 1}, ttl=SHORT)
    first = await do.must_get(DOCS, "k", refresh_ttl=False)
    await until_gone(do, DOCS, "k")
    await do.put(DOCS, "k", {"v": 2})
    second = await do.must_get(DOCS, "k")
    assert second.value == {"v": 2}
    born_again = Ruling(True, postgres=False, why="the expired item is gone: what follows isn't its update")
    assert (second.created_at > first.created_at) is born_again.of(do)


@pytest.mark.parametrize("ttl", [0, -1, -0.5, math.nan, math.inf], ids=str)
@timed
async def test_an_expiry_lies_ahead(do: Do, ttl: float) -> None:
    postgres = Raises(Exception) if not math.isfinite(ttl) else None
    ruling = Ruling(Raises(ValueError, ("ttl",)), postgres=postgres, why="an item that is born dead is a mistake")
    await ruling.check(do, lambda: do.put(DOCS, "k", {"n": 1}, ttl=ttl))


@timed
async def test_a_raw_batch_checks_the_expiry_too(do: Do) -> None:
    ruling = Ruling(Raises(ValueError, ("ttl",)), postgres=[None], why="an item that is born dead is a mistake")
    await ruling.check(do, lambda: do.batch([PutOp(DOCS, "k", {"n": 1}, ttl=0)]))
