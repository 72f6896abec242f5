"""Memories with an end: gone the moment it comes, prolonged by use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ...errors import NotFound
from ...items import level
from ...operations import Get, ListItems, Search
from ..bench import NOTES, Bench, rewrite, write
from .needs import needs

#: Seconds.
SHORT, LONG = 0.05, 3600.0


class Lives:
    """A time to live counts from the last write or refreshing read."""

    @needs("remember", "get", "list", "search", "update")
    def test_what_has_expired_is_gone_for_every_reader(self, bench: Bench) -> None:
        stored = bench.remember(value={"text": "tea"}, ttl=SHORT)
        bench.until_gone()
        assert bench.by_id(stored.id) is None
        assert bench.listed() == []
        assert bench.search("tea") == []
        assert bench.namespaces() == []
        assert not bench.forget().found
        with pytest.raises(NotFound):
            bench.one(rewrite(stored.id, {}))

    @needs("remember", "get")
    def test_what_follows_an_expired_item_is_new(self, bench: Bench) -> None:
        first = bench.remember(ttl=SHORT)
        bench.until_gone()
        second = bench.remember(expected_version=0)
        assert second.version == 1
        assert second.id != first.id
        assert second.created_at > first.created_at
        assert bench.get() == second

    @needs("remember", "get")
    def test_an_expired_item_above_the_ceiling_stands_in_nobodys_way(self, bench: Bench) -> None:
        bench.remember(classification="confidential", ttl=SHORT)
        bench.until_gone()
        low = bench.as_caller(ceiling=level("internal"))
        assert low.remember().version == 1

    @needs("remember", "get")
    def test_the_end_is_told(self, bench: Bench) -> None:
        stored = bench.remember(ttl=LONG)
        found = bench.get()
        assert found is not None
        assert stored.expires_at == found.expires_at == found.updated_at + timedelta(seconds=LONG)

    @needs("remember", "get", "list", "search")
    def test_use_prolongs_a_life_and_looking_does_not(self, bench: Bench) -> None:
        bench.remember(value={"text": "tea"}, ttl=LONG)
        for read in (Get(NOTES, "k", False), ListItems((), refresh=False), Search((), "tea", refresh=False)):
            before = self._end(bench)
            bench.one(read)
            assert self._end(bench) == before

    @needs("remember", "get", "list", "search")
    @pytest.mark.parametrize("read", [Get(NOTES, "k"), ListItems(()), Search((), "tea")])
    def test_every_read_can_prolong_a_life(self, bench: Bench, read: Get | ListItems | Search) -> None:
        written = bench.remember(value={"text": "tea"}, ttl=LONG)
        bench.one(read)
        assert self._end(bench) >= datetime.now(UTC) + timedelta(seconds=LONG - 60)
        assert self._end(bench) > written.updated_at + timedelta(seconds=LONG)
        found = bench.get()
        assert found is not None
        assert (found.version, found.updated_at) == (1, written.updated_at)

    @needs("remember", "get")
    def test_reads_of_several_keys_prolong_those_that_ask_for_it(self, bench: Bench) -> None:
        bench.ask(write("a", ttl=LONG), write("b", ttl=LONG))
        before = [self._end(bench, key) for key in "ab"]
        bench.ask(Get(NOTES, "a", False), Get(NOTES, "b", True))
        assert self._end(bench, "a") == before[0]
        assert self._end(bench, "b") > before[1]

    @needs("remember", "get", "update")
    def test_a_write_sets_the_end_anew_and_an_update_keeps_the_length(self, bench: Bench) -> None:
        stored = bench.remember(ttl=LONG)
        updated = bench.one(rewrite(stored.id, {"n": 2}))
        assert self._end(bench) == updated.updated_at + timedelta(seconds=LONG)
        bench.remember()
        found = bench.get()
        assert found is not None
        assert found.expires_at is None

    @staticmethod
    def _end(bench: Bench, key: str = "k") -> datetime:
        found = bench.get(key)
        assert found is not None
        assert found.expires_at is not None
        return found.expires_at
