"""What a caller may not see: other tenants, other partitions, higher levels, other kinds; and stale decisions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...abc import StalePolicy
from ...audit import AuditEvent
from ...errors import NotFound, PolicyDenied
from ...items import level
from ...operations import Call, Forget, ForgetItem, Get
from ...scopes import Partition, Reach
from ..bench import NOTES, OTHER, USER, Bench, reach, rewrite, write
from .needs import needs

SECRET = {"text": "tea"}


def nothing_of(bench: Bench, item_id: str, at: Reach) -> bool:
    """Whether no way of reading shows anything of what lies at `NOTES`, `k`."""
    calls = [Call(Get(NOTES, "k"), Reach((partition,))) for partition in at.partitions]
    seen = [*bench.ask(*calls), bench.by_id(item_id, at)]
    return not any(seen) and not bench.listed(at=at) and not bench.search("tea", at=at) and not bench.namespaces(at=at)


class Limits:
    """Every answer stays inside the tenant, the partitions, the ceiling and the kinds."""

    @needs("remember", "get", "list", "search")
    def test_tenants_never_meet(self, bench: Bench) -> None:
        stored = bench.remember(value=SECRET)
        stranger = Bench(bench.engine, bench.perform)
        assert nothing_of(stranger, stored.id, reach())
        assert nothing_of(stranger, stored.id, reach(scopes=("user", "session", "agent")))
        stranger.remember(value={"n": 2})
        assert bench.listed() == [stored]

    @needs("remember", "update", "forget")
    def test_tenants_do_not_write_to_each_other(self, bench: Bench) -> None:
        stored = bench.remember()
        stranger = Bench(bench.engine, bench.perform)
        for operation in (rewrite(stored.id, {}), ForgetItem(stored.id)):
            with pytest.raises(NotFound):
                stranger.one(operation, reach(scopes=("user",)))
        assert not stranger.forget().found
        assert bench.get() == stored

    @needs("remember", "get", "list", "search")
    def test_partitions_never_meet(self, bench: Bench) -> None:
        stored = bench.remember(value=SECRET)
        for other in (OTHER, Partition("agent", "u-1"), Partition("user", "u-1:"), Partition("user", "U-1")):
            assert nothing_of(bench, stored.id, reach(other))
        assert not nothing_of(bench, stored.id, reach())
        bench.remember(value={"n": 2}, at=OTHER)
        assert bench.get() == stored

    @needs("remember", "update", "forget")
    def test_an_id_of_another_partition_is_not_found(self, bench: Bench) -> None:
        stored = bench.remember()
        for operation in (rewrite(stored.id, {}), ForgetItem(stored.id)):
            with pytest.raises(NotFound):
                bench.one(operation, reach(OTHER))
        assert bench.get() == stored

    @needs("remember", "get", "list", "search")
    def test_a_scope_reaches_all_its_partitions_and_no_other(self, bench: Bench) -> None:
        team = Partition("team", "t")
        for at, where in enumerate((USER, OTHER, team)):
            bench.remember(f"k{at}", SECRET, at=where, namespace=(where.scope, where.id))
        users = reach(scopes=("user",))
        assert bench.keys(at=users) == ["k1", "k0"]
        assert sorted(bench.hits("tea", at=users)) == ["k0", "k1"]
        assert bench.namespaces(at=users) == [("user", "u-1"), ("user", "u-2")]
        assert bench.keys(at=Reach((USER,), ("team",))) == ["k2", "k0"]
        assert bench.keys(at=reach(scopes=("session",))) == []

    @needs("remember", "list")
    def test_more_partitions_than_one_look_can_take(self, bench: Bench) -> None:
        bench.ask(*(Call(write(f"k{at:03}"), reach(Partition("user", f"u-{at}"))) for at in range(450)))
        everyone = reach(scopes=("user",))
        assert bench.keys(at=everyone, limit=1000) == [f"k{at:03}" for at in range(450)]
        assert bench.keys(at=everyone, limit=3, offset=298) == ["k298", "k299", "k300"]
        assert bench.namespaces(at=everyone) == [NOTES]

    @needs("remember", "get", "list", "search")
    def test_what_is_above_the_ceiling_is_not_there(self, bench: Bench) -> None:
        stored = bench.remember(value=SECRET, classification="confidential")
        low = bench.as_caller(ceiling=level("internal"))
        assert nothing_of(low, stored.id, reach())
        assert not nothing_of(bench, stored.id, reach())

    @needs("remember", "update", "forget")
    def test_what_is_above_the_ceiling_is_not_replaced(self, bench: Bench) -> None:
        stored = bench.remember(classification="confidential")
        low = bench.as_caller(ceiling=level("internal"))
        with pytest.raises(PolicyDenied) as refused:
            low.ask(write("new"), write())
        assert refused.value.details["rule"] == "max_classification"
        for operation in (rewrite(stored.id, {}), ForgetItem(stored.id)):
            with pytest.raises(NotFound):
                low.one(operation)
        assert not low.forget().found
        assert bench.listed() == [stored]

    @needs("remember", "search")
    def test_scores_tell_nothing_of_what_is_above_the_ceiling(self, bench: Bench) -> None:
        bench.ask(write("a", {"text": "green tea"}), write("b", {"text": "black coffee"}))
        low = bench.as_caller(ceiling=level("internal"))
        before = low.search("green tea")
        bench.ask(*(write(f"s{at}", {"text": "green tea"}, classification="confidential") for at in range(5)))
        assert low.search("green tea") == before

    @needs("remember", "get", "list", "search")
    def test_other_kinds_are_not_there(self, bench: Bench) -> None:
        stored = bench.remember(value=SECRET, kind="episodic")
        other = bench.as_caller(kinds=("fact", "semantic"))
        assert nothing_of(other, stored.id, reach())
        assert not nothing_of(bench.as_caller(kinds=("episodic",)), stored.id, reach())

    # --- decisions --------------------------------------------------------------------------------------------

    def test_a_new_tenants_epoch_is_nought(self, bench: Bench) -> None:
        assert bench.perform(bench.engine.epoch(bench.tenant)) == 0

    @needs("remember", "get", "update", "list", "search", "forget")
    def test_a_decision_of_another_epoch_is_stale_and_changes_nothing(self, bench: Bench) -> None:
        stored = bench.remember(value=SECRET)
        stale = bench.as_caller(epoch=1)
        asks: list[Callable[[], object]] = [
            lambda: stale.remember("new"),
            lambda: stale.ask(write("new"), write("k"), Forget(NOTES, "k")),
            lambda: stale.forget(),
            lambda: stale.one(rewrite(stored.id, {})),
            lambda: stale.one(ForgetItem(stored.id)),
            lambda: stale.get(refresh=True),
            lambda: stale.ask(Get(NOTES, "k"), Get(NOTES, "l")),
            lambda: stale.by_id(stored.id),
            lambda: stale.listed(),
            lambda: stale.search("tea"),
            lambda: stale.namespaces(),
        ]
        for ask in asks:
            with pytest.raises(StalePolicy):
                ask()
        assert bench.listed() == [stored]

    def test_refusals_are_kept(self, bench: Bench) -> None:
        events = [AuditEvent("remember", "write_scopes", ("team",)), AuditEvent("get", "modes")]
        bench.perform(bench.engine.refuse(bench.access, events))
        bench.perform(bench.engine.refuse(bench.access, events[:1]))
