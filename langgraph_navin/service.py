"""The one pipeline that every door goes through (design 1).

    operation → partitions → policy's decision → engine → answer, and an event for what was refused

It plans; `drive` performs. A batch is decided whole before anything is sent: one refused operation refuses it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from . import operations as ops
from .abc import Engine, StalePolicy
from .audit import AuditEvent
from .callers import Caller
from .capabilities import ISOLATIONS, SCHEMA_VERSION, Isolation, require
from .effects import Steps, dispatch
from .errors import EngineUnavailable, IsolationInsufficient, PolicyDenied
from .items import KINDS, level
from .operations import Access, Answer, Call, Operation, name_of
from .policies.decide import Allowed, Refused, decide
from .policies.model import PolicyVersion
from .scopes import NOBODY, SCOPES, NamespaceMap, Partition, Reach

#: How often a batch is decided anew because the policy changed under it.
PATIENCE = 5


class PolicySource(Protocol):
    """Where policies come from."""

    def current(self, tenant: str, agent: str) -> PolicyVersion:
        """The newest known policy of an agent. Must not wait."""

    def forget(self, tenant: str, epoch: int) -> None:
        """What is known of this tenant is older than `epoch`."""


@dataclass
class OnePolicy:
    """The same policy for every agent, at whatever epoch a tenant is."""

    version: PolicyVersion = field(default_factory=lambda: PolicyVersion.model_validate({"policy": {}}))
    _epochs: dict[str, int] = field(default_factory=dict)

    def current(self, tenant: str, agent: str) -> PolicyVersion:
        epoch = self._epochs.get(tenant, 0)
        return self.version if epoch == self.version.epoch else self.version.model_copy(update={"epoch": epoch})

    def forget(self, tenant: str, epoch: int) -> None:
        self._epochs[tenant] = epoch


@dataclass
class Service:
    """Operations in, answers out, in the same order."""

    engine: Engine
    policies: PolicySource = field(default_factory=OnePolicy)
    namespaces: NamespaceMap = field(default_factory=NamespaceMap)
    #: The separation that the engine guarantees (contract 2), checked when it was opened.
    isolation: Isolation = "logical"

    def steps(self, operations: Sequence[Operation], caller: Caller) -> Steps[list[Answer]]:
        """Plan a batch.

        Raises:
            PolicyDenied: an operation isn't allowed. Nothing of the batch was sent.
            EngineUnavailable: the policy changed again and again while the batch was decided.
        """
        if not operations:
            return []
        for _ in range(PATIENCE):
            policy = self.policies.current(caller.tenant_id, caller.agent_id or "default")
            access = self._access(policy, caller)
            calls = yield from self._decided(operations, policy, caller, access)
            try:
                answers = yield from dispatch(self.engine, self.engine.steps(access, calls))
            except StalePolicy:
                epoch = yield from dispatch(self.engine, self.engine.epoch(caller.tenant_id))
                self.policies.forget(caller.tenant_id, epoch)
                continue
            return [self._told(op, answer) for op, answer in zip(operations, answers, strict=True)]
        raise EngineUnavailable("the policy changes faster than operations can be decided; try again", engine=self.engine.name)

    def _access(self, policy: PolicyVersion, caller: Caller) -> Access:
        kinds = policy.policy.allowed_kinds
        return Access(
            tenant=caller.tenant_id,
            agent=caller.agent_id or "default",
            actor=caller.pseudonym(),
            epoch=policy.epoch,
            policy_version=policy.version,
            ceiling=level(policy.policy.max_classification),
            kinds=None if len(kinds) == len(KINDS) else tuple(sorted(kinds)),
            trace=caller.trace,
        )

    def _decided(self, operations: Sequence[Operation], policy: PolicyVersion, caller: Caller, access: Access) -> Steps[list[Call]]:
        self._check_isolation(policy)
        calls: list[Call] = []
        refused: list[tuple[AuditEvent, Refused]] = []
        for operation in operations:
            require(self.engine.name, self.engine.capabilities, name_of(operation))
            call = Call(operation, self._reach(operation, policy, caller))
            decision = _decide(policy, caller, call)
            if isinstance(decision, Refused):
                refused.append((AuditEvent(name_of(operation), decision.rule, call.scopes), decision))
            else:
                calls.append(decision.call)
        if refused:
            yield from dispatch(self.engine, self.engine.refuse(access, [event for event, _ in refused]))
            event, refusal = refused[0]
            raise PolicyDenied(
                f"{event.operation} refused by {refusal.rule}: {refusal.reason}", rule=refusal.rule, operation=event.operation
            )
        return calls

    def _check_isolation(self, policy: PolicyVersion) -> None:
        required = policy.policy.required_isolation
        if ISOLATIONS.index(self.isolation) < ISOLATIONS.index(required):
            message = f"engine {self.engine.name!r} guarantees {self.isolation!r} isolation, the policy requires {required!r}"
            raise IsolationInsufficient(message, engine=self.engine.name, isolation=self.isolation, required=required)

    def _reach(self, operation: Operation, policy: PolicyVersion, caller: Caller) -> Reach:
        default = policy.policy.default_scope
        home = (caller.member(default) if caller.verified else None) or NOBODY
        place = partial(self.namespaces.partition, tenant=caller.tenant_id, default=default, home=home)
        below = partial(self.namespaces.reach, tenant=caller.tenant_id, default=default, home=home)
        match operation:
            case ops.Remember(namespace=labels) | ops.Get(namespace=labels) | ops.Forget(namespace=labels):
                return _owned(Reach((place(labels),)), caller)
            case ops.ListItems(prefix=labels) | ops.Search(prefix=labels):
                return _owned(below(labels), caller)
            case ops.ListNamespaces(prefixes=prefixes):
                start = prefixes[0] if prefixes else ()
                return _owned(below(start[: start.index("*")] if "*" in start else start), caller)
            case ops.GetItem() | ops.Update() | ops.ForgetItem():
                return Reach((), SCOPES)
        return Reach()

    def _told(self, operation: Operation, answer: Answer) -> Answer:
        if not isinstance(operation, ops.GetCapabilities):
            return answer
        able = sorted(self.engine.capabilities)
        return {
            "schema_version": SCHEMA_VERSION,
            "provider": "builtin",
            "engine_instance": self.engine.name,
            "capabilities": able,
            "memory": able,
            "knowledge": [],
            "isolation": self.isolation,
            "session_memory": True,
        }


def _owned(reach: Reach, caller: Caller) -> Reach:
    """A verified caller's own thread id stands for his own session: the same id of another owner is another thread."""
    if not caller.verified or caller.session_key is None:
        return reach
    mine, named = Partition("session", caller.session_key), Partition("session", caller.session_id or NOBODY)
    return replace(reach, partitions=tuple(mine if p == named else p for p in reach.partitions))


def _decide(policy: PolicyVersion, caller: Caller, call: Call) -> Allowed | Refused:
    try:
        return decide(policy.policy, caller, call)
    except Exception as error:
        # A rule that crashes denies. Its own words may quote the operation, so only its kind is told.
        return Refused("decision_failed", f"deciding failed with {type(error).__name__}")
