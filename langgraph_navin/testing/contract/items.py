"""Single memories and batches of them: remember, get, update, forget."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import Conflict, NotFound
from ...items import MemoryItem, Receipt, new_id
from ...operations import Call, Forget, ForgetItem, Get, GetCapabilities, GetHealth, GetItem, ListItems
from ..bench import NOTES, OTHER, Bench, reach, rewrite, write
from .needs import needs

#: What JSON can hold, at its edges.
VALUES: list[dict[str, Any]] = [
    {},
    {"a": None, "b": True, "c": [], "d": {}},
    {"deep": [[{"er": [1, 2.5, "x"]}]], "0": {"": ""}},
    {"low": -(2**63), "high": 2**64 - 1, "small": 5e-324, "large": 1.7976931348623157e308, "third": 1 / 3},
    {"text": "a\tb\n\"\\'%_ \u2028é e\u0301 東京 🙂 \x01"},
]


class Items:
    """What is written is read, exactly."""

    @needs("remember", "get")
    @pytest.mark.parametrize("value", VALUES)
    def test_a_value_survives_exactly(self, bench: Bench, value: dict[str, Any]) -> None:
        stored = bench.remember(value=value)
        found = bench.get()
        assert found is not None
        assert found.value == stored.value == value
        assert [type(part) for part in found.value.values()] == [type(value[name]) for name in found.value]

    @needs("remember", "get")
    def test_attributes_travel_beside_the_value(self, bench: Bench) -> None:
        source = {"said_by": "u-1", "where": ["chat", 3]}
        stored = bench.remember(kind="episodic", classification="public", importance=7, source=source)
        found = bench.get()
        assert found is not None
        assert (found.kind, found.classification, found.importance, found.source) == ("episodic", "public", 7, source)
        assert (found.namespace, found.key, found.partition, found.scope) == (NOTES, "k", "user:u-1", "user")
        assert found.expires_at is None
        assert found.score is None
        assert found == stored

    @needs("remember", "get")
    def test_a_new_value_is_a_new_version_of_the_same_item(self, bench: Bench) -> None:
        first = bench.remember(value={"n": 1})
        second = bench.remember(value={"n": 2})
        assert (first.version, second.version) == (1, 2)
        assert second.id == first.id
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at
        assert bench.get() == second

    @needs("remember", "get")
    def test_an_answer_belongs_to_whoever_asked(self, bench: Bench) -> None:
        bench.remember(value={"list": [1]})
        found = bench.get()
        assert found is not None
        found.value["list"].append(2)
        again = bench.get()
        assert again is not None
        assert again.value == {"list": [1]}

    @needs("remember", "get")
    def test_an_answer_that_nobody_wants_is_not_made(self, bench: Bench) -> None:
        assert bench.one(write(wanted=False)) is None
        assert bench.get() is not None

    @needs("get")
    def test_what_was_never_written_is_none(self, bench: Bench) -> None:
        assert bench.get() is None
        assert bench.by_id(new_id()) is None

    @needs("remember", "get")
    def test_keys_and_namespaces_are_compared_letter_by_letter(self, bench: Bench) -> None:
        names = ["a", "A", "é", "e\u0301", "%", "_", "*", "a b", "a/b", "\\", "'", " ", "\n", "ключ", "🙂"]
        for at, name in enumerate(names):
            bench.remember(name, {"at": at}, namespace=("user", name))
        found = [bench.get(name, namespace=("user", name)) for name in names]
        assert [item and item.value["at"] for item in found] == list(range(len(names)))
        assert bench.get("a", namespace=("user", "A")) is None

    @needs("remember", "get")
    def test_long_names_that_begin_alike_stay_apart(self, bench: Bench) -> None:
        long = tuple("l" * 200 for _ in range(8))
        bench.remember("k" * 1024, {"n": 1}, namespace=(*long, "a"))
        bench.remember("k" * 1024, {"n": 2}, namespace=(*long, "b"))
        found = [bench.get("k" * 1024, namespace=(*long, last)) for last in ("a", "b", "c")]
        assert [item and (item.value["n"], item.namespace[-1]) for item in found] == [(1, "a"), (2, "b"), None]

    @needs("remember", "get", "update")
    def test_an_update_by_id_keeps_everything_but_the_value(self, bench: Bench) -> None:
        first = bench.remember(kind="semantic", classification="public", importance=3, source={"a": 1})
        second = bench.one(rewrite(first.id, {"n": 2}))
        assert (second.value, second.version, second.id) == ({"n": 2}, 2, first.id)
        assert (second.kind, second.classification, second.importance, second.source) == ("semantic", "public", 3, {"a": 1})
        assert bench.get() == second == bench.by_id(first.id)

    @needs("remember", "update", "forget")
    def test_by_id_what_is_not_there_is_not_found(self, bench: Bench) -> None:
        there = bench.remember("there")
        for operation in (rewrite(new_id(), {}), ForgetItem(new_id())):
            with pytest.raises(NotFound):
                bench.ask(write("new"), operation, Forget(NOTES, "there"))
        assert bench.get("new") is None
        assert bench.get("there") == there

    @needs("remember", "get", "forget")
    def test_what_is_forgotten_is_gone(self, bench: Bench) -> None:
        stored = bench.remember()
        assert bench.forget().found
        assert not bench.forget().found
        assert bench.get() is None
        assert bench.by_id(stored.id) is None
        again = bench.remember()
        assert again.version == 1
        assert again.id != stored.id

    @needs("remember", "get", "forget")
    def test_forgetting_by_id_says_which(self, bench: Bench) -> None:
        stored = bench.remember()
        receipt = bench.one(ForgetItem(stored.id))
        assert (receipt.found, receipt.item_id) == (True, stored.id)
        assert bench.get() is None

    # --- expected versions ------------------------------------------------------------------------------------

    @needs("remember", "get")
    def test_an_expected_version_that_stands_there_is_replaced(self, bench: Bench) -> None:
        assert bench.remember(expected_version=0).version == 1
        assert bench.remember(expected_version=1).version == 2

    @needs("remember", "get")
    @pytest.mark.parametrize("expected", [0, 2, 7])
    def test_another_version_is_a_conflict_and_changes_nothing(self, bench: Bench, expected: int) -> None:
        stored = bench.remember()
        with pytest.raises(Conflict):
            bench.ask(write("other"), write(value={"n": 2}, expected_version=expected))
        assert bench.get() == stored
        assert bench.get("other") is None

    @needs("remember", "get")
    def test_a_version_of_nothing_is_a_conflict(self, bench: Bench) -> None:
        with pytest.raises(Conflict):
            bench.remember(expected_version=1)
        assert bench.get() is None

    @needs("remember", "update")
    def test_an_update_may_expect_a_version(self, bench: Bench) -> None:
        stored = bench.remember()
        with pytest.raises(Conflict):
            bench.one(rewrite(stored.id, {"n": 2}, expected_version=2))
        assert bench.one(rewrite(stored.id, {"n": 2}, expected_version=1)).version == 2

    # --- batches ----------------------------------------------------------------------------------------------

    def test_an_empty_batch_is_answered(self, bench: Bench) -> None:
        assert bench.ask() == []

    @needs("remember", "get", "forget", "list")
    def test_answers_keep_the_order_of_the_calls(self, bench: Bench) -> None:
        bench.remember("a")
        gone, found, stored, page, missing = bench.ask(Forget(NOTES, "a"), Get(NOTES, "a"), write("b"), ListItems(()), Get(NOTES, "b"))
        assert isinstance(gone, Receipt)
        assert isinstance(found, MemoryItem)
        assert isinstance(stored, MemoryItem)
        assert isinstance(page, list)
        assert (found.key, stored.key, missing) == ("a", "b", None)

    @needs("remember", "get", "list", "forget")
    def test_reads_of_a_batch_see_the_state_before_its_writes(self, bench: Bench) -> None:
        stored = bench.remember("a", {"n": 1})
        _, _, by_key, by_id, page = bench.ask(
            write("a", {"n": 2}), write("b"), Get(NOTES, "a", False), GetItem(stored.id), ListItems((), refresh=False)
        )
        assert by_key == by_id == stored
        assert page == [stored]

    @needs("remember", "get", "forget")
    def test_the_last_write_to_a_key_wins(self, bench: Bench) -> None:
        bench.ask(write("a", {"n": 1}), Forget(NOTES, "a"), write("a", {"n": 2}), write("b"), Forget(NOTES, "b"))
        found = bench.get("a")
        assert found is not None
        assert (found.value, found.version) == ({"n": 2}, 1)
        assert bench.get("b") is None

    @needs("remember", "get", "update", "forget")
    def test_the_last_write_wins_by_id_as_well(self, bench: Bench) -> None:
        one, two, three = (bench.remember(key) for key in ("a", "b", "c"))
        bench.ask(
            *(rewrite(one.id, {"n": 1}), write("a", {"n": 2})),
            *(write("b", {"n": 1}), rewrite(two.id, {"n": 2})),
            *(ForgetItem(three.id), write("c", {"n": 2})),
        )
        assert [item and item.value for item in map(bench.get, "abc")] == [{"n": 2}] * 3

    @needs("remember", "list")
    def test_a_batch_may_be_large_and_span_partitions(self, bench: Bench) -> None:
        calls = [Call(write(f"k{at}"), reach(OTHER if at % 2 else reach().partitions[0])) for at in range(600)]
        answers = bench.ask(*calls)
        assert [item.key for item in answers if isinstance(item, MemoryItem)] == [f"k{at}" for at in range(600)]
        assert len(bench.keys(limit=1000)) == 300

    # --- beside memories --------------------------------------------------------------------------------------

    @needs("get_health")
    def test_health_says_ok(self, bench: Bench) -> None:
        assert bench.one(GetHealth())["status"] == "ok"

    @needs("get_capabilities")
    def test_capabilities_are_those_announced(self, bench: Bench) -> None:
        assert set(bench.one(GetCapabilities())["capabilities"]) == set(bench.engine.capabilities)
