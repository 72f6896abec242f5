"""The one pipeline that every door goes through (design 1).

    operation → partitions → policy's decision → engine → answer, and an event for what was refused

It plans; `drive` performs. A batch is decided whole before anything is sent: one refused operation refuses it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from . import operations as ops
from .abc import Engine, StalePolicy
from .audit import AuditEvent
from .callers import Caller
from .capabilities import ISOLATIONS, SCHEMA_VERSION, Isolation, require
from .effects import Steps, dispatch
from .errors import EngineUnavailable, IsolationInsufficient, NavinError, PolicyDenied
from .items import KINDS, level
from .operations import Access, Answer, Call, Operation, name_of
from .policies.decide import Allowed, Known, Refused, decide
from .policies.model import PolicyVersion
from .scopes import NOBODY, SCOPES, Labels, NamespaceMap, Partition, Reach

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that an operation ended with, where others beside it may have had an answer."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class _Known:
    """What the operations of one batch have in common, found once: where a namespace lies, and whether the caller may go there."""

    places: dict[Labels, Reach] = field(default_factory=dict)
    refusals: Known = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Refusal:
    call: Call
    refused: Refused

    @property
    def event(self) -> AuditEvent:
        return AuditEvent(name_of(self.call.operation), self.refused.rule, self.call.scopes)

    def error(self) -> PolicyDenied:
        operation, rule = name_of(self.call.operation), self.refused.rule
        return PolicyDenied(f"{operation} refused by {rule}: {self.refused.reason}", rule=rule, operation=operation)


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
        return (yield from self._decided_now(caller, lambda policy, access: self._whole(operations, caller, policy, access)))

    def each(self, operations: Sequence[Operation], caller: Caller) -> Steps[list[Answer | Failed]]:
        """Plan operations that only happen to come together: each has the answer or the error that it would have alone.

        Raises an error that is none of ours, such as a model's, where nothing was done: it says nothing of the others.
        """
        outcomes: dict[int, Answer | Failed] = {}
        rest: Failed | None = None
        try:
            yield from self._decided_now(caller, lambda policy, access: self._apart(operations, caller, policy, access, outcomes))
        except NavinError as error:
            # Whoever has been answered by now stays answered.
            rest = Failed(error)
        except Exception as error:
            if not outcomes:
                raise
            rest = Failed(error)
        return [outcomes[at] if at in outcomes or rest is None else rest for at in range(len(operations))]

    def _decided_now(self, caller: Caller, attempt: Callable[[PolicyVersion, Access], Steps[T]]) -> Steps[T]:
        """Decide and do under the policy of now: again when it changed meanwhile."""
        for _ in range(PATIENCE):
            policy = self.policies.current(caller.tenant_id, caller.agent_id or "default")
            try:
                return (yield from attempt(policy, self._access(policy, caller)))
            except StalePolicy:
                pass
            epoch = yield from dispatch(self.engine, self.engine.epoch(caller.tenant_id))
            self.policies.forget(caller.tenant_id, epoch)
        raise EngineUnavailable("the policy changes faster than operations can be decided; try again", engine=self.engine.name)

    def _whole(self, operations: Sequence[Operation], caller: Caller, policy: PolicyVersion, access: Access) -> Steps[list[Answer]]:
        self._check_isolation(policy)
        known = _Known()
        decisions = [self._decision(operation, policy, caller, known) for operation in operations]
        refusals = [decision for decision in decisions if isinstance(decision, _Refusal)]
        if refusals:
            yield from dispatch(self.engine, self.engine.refuse(access, [refusal.event for refusal in refusals]))
            raise refusals[0].error()
        calls = [decision for decision in decisions if isinstance(decision, Call)]
        answers = yield from dispatch(self.engine, self.engine.steps(access, calls))
        return [self._told(op, answer) for op, answer in zip(operations, answers, strict=True)]

    def _apart(
        self,
        operations: Sequence[Operation],
        caller: Caller,
        policy: PolicyVersion,
        access: Access,
        outcomes: dict[int, Answer | Failed],
    ) -> Steps[None]:
        self._check_isolation(policy)
        # When the policy changed half-way, some have been answered already.
        known = _Known()
        decisions = {at: self._decision(op, policy, caller, known) for at, op in enumerate(operations) if at not in outcomes}
        yield from self._halved(access, [(at, call) for at, call in decisions.items() if isinstance(call, Call)], outcomes)
        refusals = {at: refusal for at, refusal in decisions.items() if isinstance(refusal, _Refusal)}
        if refusals:
            yield from dispatch(self.engine, self.engine.refuse(access, [refusal.event for refusal in refusals.values()]))
            outcomes |= {at: Failed(refusal.error()) for at, refusal in refusals.items()}

    def _halved(self, access: Access, calls: Sequence[tuple[int, Call]], outcomes: dict[int, Answer | Failed]) -> Steps[None]:
        """Do calls at once; where that fails, half of them at a time, until whatever fails does so alone."""
        if not calls:
            return
        tentative = replace(access, tentative=len(calls) > 1)
        try:
            answers = yield from dispatch(self.engine, self.engine.steps(tentative, [call for _, call in calls]))
        except NavinError as error:
            failed = error
        else:
            outcomes |= {at: self._told(call.operation, answer) for (at, call), answer in zip(calls, answers, strict=True)}
            return
        if len(calls) == 1 or _concerns_all(failed):
            outcomes |= {at: Failed(failed) for at, _ in calls}
            return
        middle = len(calls) // 2
        yield from self._halved(access, calls[:middle], outcomes)
        yield from self._halved(access, calls[middle:], outcomes)

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

    def _decision(self, operation: Operation, policy: PolicyVersion, caller: Caller, known: _Known) -> Call | _Refusal:
        require(self.engine.name, self.engine.capabilities, name_of(operation))
        call = Call(operation, self._reach(operation, policy, caller, known))
        decision = _decide(policy, caller, call, known)
        return decision.call if isinstance(decision, Allowed) else _Refusal(call, decision)

    def _check_isolation(self, policy: PolicyVersion) -> None:
        required = policy.policy.required_isolation
        if ISOLATIONS.index(self.isolation) < ISOLATIONS.index(required):
            message = f"engine {self.engine.name!r} guarantees {self.isolation!r} isolation, the policy requires {required!r}"
            raise IsolationInsufficient(message, engine=self.engine.name, isolation=self.isolation, required=required)

    def _reach(self, operation: Operation, policy: PolicyVersion, caller: Caller, known: _Known) -> Reach:
        if isinstance(operation, (ops.Remember, ops.Get, ops.Forget)) and (found := known.places.get(operation.namespace)) is not None:
            return found
        tenant, default = caller.tenant_id, policy.policy.default_scope
        home = (caller.member(default) if caller.verified else None) or NOBODY
        match operation:
            case ops.Remember(namespace=labels) | ops.Get(namespace=labels) | ops.Forget(namespace=labels):
                place = _owned(Reach((self.namespaces.partition(labels, tenant=tenant, default=default, home=home),)), caller)
                known.places[labels] = place
                return place
            case ops.ListItems(prefix=labels) | ops.Search(prefix=labels):
                return _owned(self.namespaces.reach(labels, tenant=tenant, default=default, home=home), caller)
            case ops.ListNamespaces(prefixes=prefixes):
                start = prefixes[0] if prefixes else ()
                start = start[: start.index("*")] if "*" in start else start
                return _owned(self.namespaces.reach(start, tenant=tenant, default=default, home=home), caller)
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


def _concerns_all(error: NavinError) -> bool:
    """Whether each operation of a batch would meet this error: the engine is away, or the store is set up wrongly."""
    if isinstance(error, EngineUnavailable):
        return not error.answered
    return str(error.details.get("field", "")).startswith("index.")


def _owned(reach: Reach, caller: Caller) -> Reach:
    """A verified caller's own thread id stands for his own session: the same id of another owner is another thread."""
    if not caller.verified or caller.session_key is None:
        return reach
    mine, named = Partition("session", caller.session_key), Partition("session", caller.session_id or NOBODY)
    return replace(reach, partitions=tuple(mine if p == named else p for p in reach.partitions))


def _decide(policy: PolicyVersion, caller: Caller, call: Call, known: _Known) -> Allowed | Refused:
    try:
        return decide(policy.policy, caller, call, known.refusals)
    except Exception as error:
        # A rule that crashes denies. Its own words may quote the operation, so only its kind is told.
        return Refused("decision_failed", f"deciding failed with {type(error).__name__}")
