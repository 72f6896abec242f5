"""The builtin engine against the reference model: the same random operations, the same answers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from databases import Database
from langgraph_navin.abc import Engine
from langgraph_navin.drive import run
from langgraph_navin.effects import dispatch
from langgraph_navin.errors import NavinError
from langgraph_navin.filters import parse
from langgraph_navin.items import KINDS, MemoryItem, Receipt, new_id
from langgraph_navin.operations import (
    Call,
    Forget,
    ForgetItem,
    Get,
    GetItem,
    ListItems,
    ListNamespaces,
    Operation,
    Remember,
    Search,
    Update,
)
from langgraph_navin.scopes import Labels, Partition, Reach
from langgraph_navin.testing import DictionaryEngine, FixedClock
from langgraph_navin.testing.bench import Bench, Perform
from langgraph_navin.values import encode

#: Seconds: longer than the test takes, so that lives end only where the test ends them.
LIFE = 3600.0
#: Stands for the id of an item that is there; which one is chosen when the batch runs.
SOME_ID = "some id "

ANN, BOB, BOT = Partition("user", "a"), Partition("user", "b"), Partition("agent", "a")
#: As in the service, a namespace has one partition.
PARTITIONS: dict[Labels, Partition] = {
    **{("n",): ANN, ("n", "x"): ANN, ("n", "x", "y"): ANN},
    **{("n", "xy", "x"): BOB, ("*", "x"): BOB},
    **{("é", "%"): BOT, tuple("l" * 200 for _ in range(6)): BOT},
}
EVERYWHERE = Reach((), ("user", "agent"))
KEYS = ["a", "B", ""]
WORDS = ["tea", "green", "Élève", "getUserName", "2026-11-30", "東京都", "c++", "of"]
LEAVES = [-1, 0, 0.5, 1, 1.0, 1.5, 2**53 + 1, 2**64 - 1, "", "1", "a", "B", "é", True, False, None]

PROFILE = (
    settings(max_examples=300, stateful_step_count=40)
    if os.environ.get("NAVIN_PROVE")
    else settings(max_examples=100, stateful_step_count=20, derandomize=True, database=None)
)

leaves = st.sampled_from(LEAVES)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
#: Two words: of more, the sums of floats would depend on their order, and equal scores be unequal.
questions = st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join)
parts = st.one_of(leaves, st.lists(leaves, max_size=3), st.dictionaries(st.sampled_from("ab0"), leaves, max_size=2))
values = st.fixed_dictionaries({"text": texts, "n": parts}, optional={"title": texts, "0": parts})
names = st.sampled_from(list(PARTITIONS))
keys = st.sampled_from(KEYS)
ids = st.integers(0, 30).map(lambda at: f"{SOME_ID}{at}")
reaches = st.one_of(
    st.sampled_from([Reach((ANN,)), Reach((BOB,)), Reach((ANN, BOB)), Reach((), ("user",)), Reach((BOT,), ("user",)), Reach()]),
    st.just(Reach((), ("user", "agent", "team"))),
)
everywhere = st.just(EVERYWHERE)
patterns = st.lists(st.sampled_from(["n", "x", "y", "*", "é"]), min_size=1, max_size=3).map(tuple)
pages = st.fixed_dictionaries({"limit": st.sampled_from([100, 100, 100, 3, 2, 1, 0]), "offset": st.sampled_from([0, 0, 0, 0, 1, 3])})


def filters() -> st.SearchStrategy[dict[str, Any] | None]:
    orders = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.sampled_from([0, 1, 1.5, 2**53, "a", ""]), min_size=1)
    tests = st.one_of(
        parts,
        orders,
        *(st.builds(lambda o, p: {o: p}, st.just(name), parts) for name in ("$eq", "$ne", "$contains", "$not")),
        st.lists(leaves, max_size=2).map(lambda those: {"$in": those}),
    )
    fields = st.dictionaries(st.sampled_from(["n", "0", "text"]), tests, max_size=2)
    joins = st.builds(lambda o, fs: {o: fs}, st.sampled_from(["$and", "$or"]), st.lists(fields, max_size=2))
    return st.one_of(st.none(), st.none(), st.none(), fields, joins, fields.map(lambda f: {"$not": f}))


def calls(operations: st.SearchStrategy[Any], at: st.SearchStrategy[Reach]) -> st.SearchStrategy[Call]:
    return st.builds(Call, operations, at)


def placed(operations: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Calls that name a namespace, in its partition."""
    return operations.map(lambda operation: Call(operation, Reach((PARTITIONS[operation.namespace],))))


versions = st.sampled_from([*[None] * 17, 0, 1, 2])
remembers = st.builds(
    lambda namespace, key, value, **more: Remember(namespace, key, encode(value), new_id(), value, **more),
    names,
    keys,
    values,
    kind=st.sampled_from(KINDS),
    classification=st.sampled_from(["public", "internal", "confidential"]),
    importance=st.one_of(st.none(), st.integers(1, 10)),
    source=st.one_of(st.none(), st.just({"who": "u", "seen": [1]})),
    index=st.sampled_from([None, None, False, ("title",), ("$", "title"), ("n", "missing[*].x")]),
    ttl=st.sampled_from([None, LIFE]),
    expected_version=versions,
    wanted=st.booleans(),
)
updates = st.builds(lambda item, value, version: Update(item, encode(value), value, version), ids, values, versions)
lists = st.builds(
    lambda prefix, where, page, refresh: ListItems(prefix, parse(where), refresh=refresh, **page),
    *(st.one_of(st.just(()), names), filters(), pages, st.booleans()),
)
searches = st.builds(
    lambda prefix, query, where, page, refresh: Search(prefix, query, parse(where), refresh=refresh, **page),
    *(st.one_of(st.just(()), names), questions, filters(), pages, st.booleans()),
)
spaces = st.builds(
    lambda prefixes, suffixes, depth, page: ListNamespaces(tuple(prefixes), tuple(suffixes), depth, **page),
    *(st.lists(patterns, max_size=1), st.lists(patterns, max_size=1), st.sampled_from([None, 1, 2]), pages),
)
forgets = st.one_of(placed(st.builds(Forget, names, keys)), calls(st.builds(ForgetItem, ids), everywhere))
READS = (
    placed(st.builds(Get, names, keys, st.booleans())),
    calls(st.builds(GetItem, ids), reaches),
    calls(lists, reaches),
    calls(searches, reaches),
    calls(searches, everywhere),
    calls(spaces, reaches),
)


# Functions, since Hypothesis prints what a rule draws from: these as their names, strategies as all that they are made of.
@st.composite
def remember(draw: st.DrawFn) -> Call:
    return draw(placed(remembers))


@st.composite
def update(draw: st.DrawFn) -> Call:
    return draw(calls(updates, everywhere))


@st.composite
def change(draw: st.DrawFn) -> Call:
    return draw(st.one_of(remember(), remember(), forgets, calls(updates, reaches)))


@st.composite
def reading(draw: st.DrawFn) -> list[Call]:
    return [draw(read) for read in READS]


def blocking(engine: Engine) -> Perform:
    return cast(Perform, lambda plan: run(dispatch(engine, plan)))


def plain(answer: Any) -> Any:
    """An answer without what two engines may do differently: the times themselves, and how a receipt lists its places."""
    match answer:
        case list():
            return [plain(one) for one in answer]
        case Receipt():
            return answer.found, answer.item_id
        case MemoryItem():
            return _item(answer)
    return answer


def _item(item: MemoryItem) -> dict[str, Any]:
    told: dict[str, Any] = {field.name: getattr(item, field.name) for field in fields(item)}
    left = None if item.expires_at is None else (item.expires_at - item.updated_at).total_seconds() / LIFE
    return told | {
        # As text, where 1, 1.0 and True are three things.
        "value": json.dumps(item.value, sort_keys=True),
        "created_at": item.created_at == item.updated_at,
        "updated_at": None,
        # 1.0 after a write, 1.1 after a read that counts as use.
        "expires_at": left and round(left, 1),
        "score": item.score and round(item.score, 9),
    }


def outcome(bench: Bench, batch: Sequence[Call]) -> Any:
    try:
        return plain(bench.ask(*batch))
    except NavinError as error:
        return type(error), error.details.get("rule")


class Pair(RuleBasedStateMachine):
    """Both engines, in step."""

    #: Set by the test.
    database: Database

    @initialize(batch=st.lists(remember(), min_size=5, max_size=12))
    def start(self, batch: list[Call]) -> None:
        self.model = DictionaryEngine(FixedClock())
        self.expected = Bench(self.model, blocking(self.model))
        self.actual = Bench(self.database.engine, blocking(self.database.engine), self.expected.tenant)
        self.compare(batch)

    def there(self) -> list[str]:
        return [item.id for item in self.expected.listed(at=EVERYWHERE)]

    def settled(self, call: Call) -> Call:
        """The call with the id of a real item, or now and then of none, if it asks for one."""
        wanted, there = str(getattr(call.operation, "item_id", "")), self.there()
        if not wanted.startswith(SOME_ID):
            return call
        at = int(wanted.removeprefix(SOME_ID))
        chosen = there[at % len(there)] if there and at else new_id()
        return replace(call, operation=cast(Operation, replace(cast(Any, call.operation), item_id=chosen)))

    def compare(self, batch: Sequence[Call], **limits: Any) -> None:
        settled = [self.settled(call) for call in batch]
        assert outcome(self.actual.as_caller(**limits), settled) == outcome(self.expected.as_caller(**limits), settled)

    @rule(batch=st.lists(remember(), min_size=1, max_size=6))
    def remember(self, batch: list[Call]) -> None:
        self.compare(batch)

    @rule(call=update())
    def rewrite(self, call: Call) -> None:
        self.compare([call])

    @rule(batch=st.lists(change(), min_size=1, max_size=4), more=reading())
    def mixed(self, batch: list[Call], more: list[Call]) -> None:
        self.compare([*batch, *more])

    @rule(batch=reading())
    def read(self, batch: list[Call]) -> None:
        self.compare(batch)

    @rule(
        batch=st.one_of(st.lists(change(), min_size=1, max_size=1), reading()),
        ceiling=st.sampled_from([0, 1]),
        kinds=st.sampled_from([None, ("fact", "episodic"), ()]),
    )
    def limited(self, batch: list[Call], ceiling: int, kinds: Any) -> None:
        self.compare(batch, ceiling=ceiling, kinds=kinds)

    @rule(at=st.integers(0, 30))
    def expire(self, at: int) -> None:
        there = self.there()
        if there:
            item = there[at % len(there)]
            self.database.rows(
                "update navin.items set expires_at = clock_timestamp() where tenant_id = %s and id = %s", self.expected.tenant, item
            )
            self.model.expire(self.expected.tenant, item)

    @rule()
    def sweep(self) -> None:
        self.actual.perform(self.database.engine.sweep())

    @rule()
    def upkeep(self) -> None:
        self.actual.perform(self.database.engine.upkeep(thorough=True))

    @invariant()
    def everything_is_the_same(self) -> None:
        self.compare([Call(ListItems((), limit=1000, refresh=False), EVERYWHERE)])


def test_the_builtin_engine_answers_as_the_reference_model(migrated18: Database) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    machine = type("Pair", (Pair,), {"database": migrated18})
    run_state_machine_as_test(machine, settings=settings(PROFILE, deadline=None, suppress_health_check=checks))
