"""The decision: the contract's table of scopes, narrowing before any look-up, and everything denied that isn't allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin import service
from langgraph_navin.audit import AuditEvent
from langgraph_navin.callers import Caller
from langgraph_navin.capabilities import MEMORY
from langgraph_navin.drive import run
from langgraph_navin.effects import Steps
from langgraph_navin.errors import PolicyDenied
from langgraph_navin.items import CLASSIFICATIONS, KINDS
from langgraph_navin.operations import (
    Access,
    Answer,
    Call,
    Forget,
    ForgetItem,
    Get,
    GetCapabilities,
    GetHealth,
    GetItem,
    ListItems,
    ListNamespaces,
    Operation,
    Remember,
    Search,
    Update,
)
from langgraph_navin.policies.decide import Allowed, Refused, decide
from langgraph_navin.policies.model import Policy, PolicyVersion
from langgraph_navin.scopes import MODES, NOBODY, SCOPES, Partition, Reach, Scope

MARKER = "S3CRET-VALUE"
OPEN = Policy(
    modes=frozenset(MODES),
    write_scopes=frozenset(SCOPES),
    read_scopes=frozenset(SCOPES),
    teams=frozenset({"red", "green"}),
    global_access=True,
)
ADA = Caller("acme", user_id="ada", agent_id="helper", session_id="s-1", project_id="p-1", teams=frozenset({"red", "blue"}))
ADMIN = Caller("acme", user_id="root", roles=frozenset({"platform_admin"}))
APPLICATION = Caller("acme", agent_id="helper", verified=False)
NOBODY_ELSE = Caller("acme")

NS, KEY = ("x",), "k"


def remember(**given: Any) -> Remember:
    return Remember(NS, KEY, b'{"v":1}', item_id="i", document={"v": MARKER}, **given)


def deed(name: str) -> Operation:
    return remember() if name == "write" else Get(NS, KEY)


def rule(decision: Allowed | Refused) -> str:
    return "" if isinstance(decision, Allowed) else decision.rule


def asked(policy: Policy, caller: Caller, name: str, partition: Partition) -> str:
    """The rule that refused, or nothing."""
    return rule(decide(policy, caller, Call(deed(name), Reach((partition,)))))


# --- the table of contract 4 ------------------------------------------------------------------------------------

#: Who, scope, member, the rule that refuses a write, the rule that refuses a read.
TABLE: list[tuple[Caller, Scope, str, str, str]] = [
    (ADA, "session", str(ADA.session_key), "", ""),
    # A thread id alone is nobody's: the service puts its owner to it.
    (ADA, "session", "s-1", "session_partition", "session_partition"),
    (ADA, "session", "s-2", "session_partition", "session_partition"),
    (ADA, "user", "ada", "", ""),
    (ADA, "user", "bob", "user_partition", "user_partition"),
    (ADA, "user", "Ada", "user_partition", "user_partition"),
    (ADA, "user", NOBODY, "user_partition", "user_partition"),
    (ADA, "agent", "helper", "", ""),
    (ADA, "agent", "other", "agent_partition", "agent_partition"),
    (ADA, "shared_agents", "helper", "", ""),
    (ADA, "shared_agents", "other", "shared_agents_partition", "shared_agents_partition"),
    (ADA, "project", "p-1", "", ""),
    (ADA, "project", "p-2", "project_partition", "project_partition"),
    (ADA, "team", "red", "", ""),
    (ADA, "team", "blue", "teams", "teams"),
    (ADA, "team", "green", "team_partition", "team_partition"),
    (ADA, "organization", "acme", "", ""),
    (ADA, "organization", "other", "organization_partition", "organization_partition"),
    (ADA, "global", NOBODY, "global", ""),
    (ADMIN, "global", NOBODY, "", ""),
    (ADMIN, "user", "ada", "user_partition", "user_partition"),
    (NOBODY_ELSE, "user", "ada", "user_partition", "user_partition"),
    (NOBODY_ELSE, "session", "s-1", "session_partition", "session_partition"),
    (NOBODY_ELSE, "agent", "helper", "agent_partition", "agent_partition"),
    (NOBODY_ELSE, "organization", "acme", "", ""),
    # the application is trusted with the ids in a namespace, not with what its policy leaves off
    (APPLICATION, "session", "s-2", "", ""),
    (APPLICATION, "user", "bob", "", ""),
    (APPLICATION, "user", NOBODY, "", ""),
    (APPLICATION, "agent", "other", "", ""),
    (APPLICATION, "project", "p-2", "", ""),
    (APPLICATION, "team", "blue", "", ""),
    (APPLICATION, "organization", "acme", "", ""),
    (APPLICATION, "global", NOBODY, "global", ""),
]


@pytest.mark.parametrize(("caller", "scope", "member", "write", "read"), TABLE, ids=lambda v: str(getattr(v, "user_id", v)))
def test_a_partition_is_open_to_whom_the_contract_says(caller: Caller, scope: Scope, member: str, write: str, read: str) -> None:
    assert asked(OPEN, caller, "write", Partition(scope, member)) == write
    assert asked(OPEN, caller, "read", Partition(scope, member)) == read


OWN: list[tuple[Scope, str, str]] = [
    ("session", str(ADA.session_key), "session"),
    ("user", "ada", "long_term"),
    ("agent", "helper", "agent"),
    ("shared_agents", "helper", "shared"),
    ("project", "p-1", "shared"),
    ("team", "red", "shared"),
    ("organization", "acme", "shared"),
    ("global", NOBODY, "shared"),
]


@pytest.mark.parametrize("caller", [ADA, APPLICATION], ids=["verified", "application"])
@pytest.mark.parametrize(("scope", "member", "mode"), OWN)
def test_a_scope_needs_its_mode_and_its_list(caller: Caller, scope: Scope, member: str, mode: str) -> None:
    partition, rest = Partition(scope, member), frozenset(SCOPES) - {scope}
    unmoded = OPEN.model_copy(update={"modes": frozenset(MODES) - {mode}})
    assert {asked(unmoded, caller, name, partition) for name in ("write", "read")} == {"modes"}
    reads_only = OPEN.model_copy(update={"write_scopes": rest})
    assert (asked(reads_only, caller, "write", partition), asked(reads_only, caller, "read", partition)) == ("write_scopes", "")
    writes_only = OPEN.model_copy(update={"read_scopes": rest})
    assert asked(writes_only, caller, "read", partition) == "read_scopes"


def test_global_needs_its_own_switch() -> None:
    closed = OPEN.model_copy(update={"global_access": False})
    for caller in (ADA, ADMIN, APPLICATION):
        assert {asked(closed, caller, name, Partition("global", NOBODY)) for name in ("write", "read")} == {"global_access"}


def test_by_default_only_what_is_not_shared_is_open() -> None:
    for scope, member, _ in OWN:
        expected = "" if scope in {"session", "user", "agent"} else "modes"
        assert {asked(Policy(), ADA, name, Partition(scope, member)) for name in ("write", "read")} == {expected}


def test_one_foreign_partition_among_ones_own_refuses_all() -> None:
    mixed = Reach((Partition("user", "ada"), Partition("user", "bob")))
    for operation in (remember(), ListItems(NS), Search(NS, MARKER)):
        assert rule(decide(OPEN, ADA, Call(operation, mixed))) == "user_partition"


@pytest.mark.parametrize("operation", [GetHealth(), GetCapabilities()], ids=lambda o: type(o).__name__)
def test_health_and_capabilities_need_no_partition(operation: Operation) -> None:
    assert decide(Policy(modes=frozenset()), NOBODY_ELSE, Call(operation)) == Allowed(Call(operation))


# --- what is written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ceiling", CLASSIFICATIONS)
@pytest.mark.parametrize("asks", CLASSIFICATIONS)
def test_a_write_stays_below_the_ceiling(ceiling: str, asks: str) -> None:
    policy = Policy.model_validate({"max_classification": ceiling})
    decision = decide(policy, ADA, Call(remember(classification=asks), Reach((Partition("user", "ada"),))))
    fits = CLASSIFICATIONS.index(asks) <= CLASSIFICATIONS.index(ceiling)
    assert rule(decision) == ("" if fits else "max_classification")


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_is_of_an_allowed_kind(kind: str) -> None:
    policy = Policy.model_validate({"allowed_kinds": ["fact"]})
    decision = decide(policy, ADA, Call(remember(kind=kind), Reach((Partition("user", "ada"),))))
    assert rule(decision) == ("" if kind == "fact" else "allowed_kinds")


# --- narrowing --------------------------------------------------------------------------------------------------

SPANNING: list[Operation] = [
    ListItems(()),
    Search((), MARKER),
    ListNamespaces(),
    GetItem("i"),
    Update("i", b"{}", {}),
    ForgetItem("i"),
]


@pytest.mark.parametrize("operation", SPANNING, ids=lambda o: type(o).__name__)
def test_a_verified_caller_spans_nothing_but_his_own(operation: Operation) -> None:
    decision = decide(OPEN, ADA, Call(operation, Reach((), SCOPES)))
    assert isinstance(decision, Allowed)
    assert not decision.call.reach.spans
    blue = Partition("team", "blue")
    assert set(decision.call.reach.partitions) == set(ADA.partitions()) - {blue}


@pytest.mark.parametrize("operation", SPANNING, ids=lambda o: type(o).__name__)
def test_the_application_spans_the_scopes_that_its_policy_names(operation: Operation) -> None:
    decision = decide(Policy(), APPLICATION, Call(operation, Reach((), SCOPES)))
    assert isinstance(decision, Allowed)
    assert set(decision.call.reach.scopes) == {"session", "user", "agent"}
    assert decision.call.reach.partitions == ()


def test_narrowing_keeps_named_partitions_only_where_they_are_allowed() -> None:
    reach = Reach((Partition("user", NOBODY), Partition("user", "ada"), Partition("user", "bob")), ("team",))
    verified = decide(OPEN, ADA, Call(ListItems(NS), reach))
    assert isinstance(verified, Allowed)
    assert set(verified.call.reach.partitions) == {Partition("user", "ada"), Partition("team", "red")}
    application = decide(OPEN, APPLICATION, Call(ListItems(NS), reach))
    assert isinstance(application, Allowed)
    assert application.call.reach == reach


# --- properties -------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    Policy,
    modes=st.frozensets(st.sampled_from(MODES)),
    write_scopes=st.frozensets(st.sampled_from(SCOPES)),
    read_scopes=st.frozensets(st.sampled_from(SCOPES)),
    teams=st.frozensets(st.sampled_from(["one-a", "one-b", "two-a", "two-b"])),
    global_access=st.booleans(),
)


def callers(whose: str) -> st.SearchStrategy[Caller]:
    """Verified callers with ids that no caller of another name has."""
    ids = st.sampled_from([f"{whose}-a", f"{whose}-b"])
    maybe = st.none() | ids
    roles = st.frozensets(st.sampled_from(["platform_admin", "tenant_admin"]))
    return st.builds(Caller, ids, maybe, maybe, maybe, maybe, st.frozensets(ids), roles)


EVERYWHERE = st.sampled_from([remember(), Forget(NS, KEY), Get(NS, KEY), *SPANNING])


@given(st.one_of(POLICIES, st.just(OPEN)), callers("one"), callers("two"), EVERYWHERE)
def test_callers_who_share_nothing_reach_nothing_of_each_other(policy: Policy, mine: Caller, foreign: Caller, operation: Operation) -> None:
    for partition in foreign.partitions():
        assert isinstance(decide(policy, mine, Call(operation, Reach((partition,)))), Refused)
        spanning = decide(policy, mine, Call(operation, Reach((partition,), SCOPES)))
        assert isinstance(spanning, Refused) or partition not in spanning.call.reach.partitions
        assert isinstance(spanning, Refused) or not spanning.call.reach.spans


@given(st.one_of(POLICIES, st.just(OPEN)), callers("one"), EVERYWHERE)
def test_whatever_spanning_allows_is_allowed_by_name_too(policy: Policy, caller: Caller, operation: Operation) -> None:
    decision = decide(policy, caller, Call(operation, Reach((), SCOPES)))
    assert isinstance(decision, Allowed)
    for partition in decision.call.reach.partitions:
        assert isinstance(decide(policy, caller, Call(operation, Reach((partition,)))), Allowed)


@given(POLICIES, callers("one"), EVERYWHERE, st.sampled_from(SCOPES), st.sampled_from(["one-a", "two-a", NOBODY]))
def test_a_refusal_quotes_no_content(policy: Policy, caller: Caller, operation: Operation, scope: Scope, member: str) -> None:
    decision = decide(policy, caller, Call(operation, Reach((Partition(scope, member),))))
    assert MARKER not in repr(decision)


# --- a crash ----------------------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """An engine that keeps what it was asked for and does nothing."""

    name: str = "recorder"
    capabilities: frozenset[str] = frozenset(MEMORY)
    sent: list[Call] = field(default_factory=list)
    refused: list[AuditEvent] = field(default_factory=list)

    def steps(self, access: Access, calls: Sequence[Call]) -> Steps[list[Answer]]:
        yield from ()
        self.sent += calls
        return [None] * len(calls)

    def refuse(self, access: Access, events: Sequence[AuditEvent]) -> Steps[None]:
        yield from ()
        self.refused += events

    def epoch(self, tenant: str) -> Steps[int]:
        yield from ()
        return 0

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield self

    asession: Any = None


def served(engine: Recorder, *operations: Operation, caller: Caller = ADA, policy: Policy = OPEN) -> list[Answer]:
    policies = service.OnePolicy(PolicyVersion(policy=policy))
    return run(service.Service(engine, policies).steps(operations, caller))


def test_a_rule_that_crashes_refuses_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*asked: Any) -> Any:
        raise KeyError(MARKER)

    monkeypatch.setattr(service, "decide", crash)
    engine = Recorder()
    with pytest.raises(PolicyDenied) as refused:
        served(engine, Get(("user", "ada"), KEY))
    assert refused.value.details == {"rule": "decision_failed", "operation": "get"}
    assert MARKER not in repr((refused.value, refused.value.details, refused.value.__cause__, refused.value.__context__))
    assert engine.sent == []
    assert [event.rule for event in engine.refused] == ["decision_failed"]


def test_one_refused_operation_refuses_its_batch_and_each_refusal_is_kept() -> None:
    engine = Recorder()
    own, foreign = ("user", "ada"), ("user", "bob")
    with pytest.raises(PolicyDenied, match="user_partition"):
        served(engine, Get(own, KEY), Get(foreign, KEY), Forget(foreign, KEY), Get(own, KEY))
    assert engine.sent == []
    assert engine.refused == [AuditEvent("get", "user_partition", ("user",)), AuditEvent("forget", "user_partition", ("user",))]


def test_an_allowed_batch_is_sent_in_its_order() -> None:
    engine = Recorder()
    operations: list[Operation] = [Get(("user", "ada"), "1"), Forget(("session", "s-1"), "2"), Get(("team", "red"), "3")]
    assert served(engine, *operations) == [None, None, None]
    assert [call.operation for call in engine.sent] == operations
    assert [call.partition for call in engine.sent] == [
        Partition("user", "ada"),
        Partition("session", str(ADA.session_key)),
        Partition("team", "red"),
    ]
    assert engine.refused == []
