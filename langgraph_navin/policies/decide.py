"""The decision: one pure function, deny by default (contract 4).

`decide` answers with a value: `Allowed`, with the call narrowed to what may be seen, or `Refused`, with the rule
that said no. A crash inside it refuses too (`service`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ..callers import Caller
from ..items import level
from ..operations import WRITES, Call, GetCapabilities, GetHealth, Operation, Remember
from ..scopes import MODE_OF, NOBODY, Partition, Reach, Scope
from .model import Policy

Deed: TypeAlias = Literal["write", "read"]


@dataclass(frozen=True, slots=True)
class Allowed:
    call: Call


@dataclass(frozen=True, slots=True)
class Refused:
    #: The field of the policy, or of contract 4, that said no.
    rule: str
    #: What would be right. Never content.
    reason: str


Decision: TypeAlias = Allowed | Refused


#: What was found of a partition under one policy, for one caller: the operations of a batch ask the same again and again.
Known: TypeAlias = dict[tuple[Partition, Deed], Refused | None]


def decide(policy: Policy, caller: Caller, call: Call, known: Known | None = None) -> Decision:
    """Whether `caller` may do `call` under `policy`, and on which partitions.

    Args:
        known: kept by whoever decides several calls of the same caller under the same policy.
    """
    known = {} if known is None else known
    operation = call.operation
    if isinstance(operation, (GetHealth, GetCapabilities)):
        return Allowed(call)
    if isinstance(operation, WRITES):
        return _write(policy, caller, call, known)
    return _read(policy, caller, call, known)


def _write(policy: Policy, caller: Caller, call: Call, known: Known) -> Decision:
    if (refusal := _partitions(policy, caller, call, "write", known)) is not None:
        return refusal
    if (refusal := _attributes(policy, call.operation)) is not None:
        return refusal
    # By id, the item's partition is found among those the caller may write.
    return Allowed(_narrowed(policy, caller, call, "write") if call.reach.spans else call)


def _attributes(policy: Policy, operation: Operation) -> Refused | None:
    if not isinstance(operation, Remember):
        return None
    if operation.kind not in policy.allowed_kinds:
        return Refused("allowed_kinds", f"kind {operation.kind!r} isn't in the policy's allowed_kinds")
    if level(operation.classification) > level(policy.max_classification):
        return Refused("max_classification", f"{operation.classification!r} is above the policy's {policy.max_classification!r}")
    return None


def _read(policy: Policy, caller: Caller, call: Call, known: Known) -> Decision:
    if not call.reach.spans:
        return _partitions(policy, caller, call, "read", known) or Allowed(call)
    return Allowed(_narrowed(policy, caller, call, "read"))


def _partitions(policy: Policy, caller: Caller, call: Call, deed: Deed, known: Known) -> Refused | None:
    for partition in call.reach.partitions:
        if (partition, deed) not in known:
            known[partition, deed] = _partition(policy, caller, partition, deed)
        if (refusal := known[partition, deed]) is not None:
            return refusal
    return None


def _narrowed(policy: Policy, caller: Caller, call: Call, deed: Deed) -> Call:
    """A reach over whole scopes, cut down to what may be touched: before anything is looked up, never after."""
    scopes = tuple(s for s in call.reach.scopes if _scope(policy, s, deed) is None)
    named = tuple(p for p in call.reach.partitions if _partition(policy, caller, p, deed) is None)
    if caller.verified:
        own = (p for p in caller.partitions() if p.scope in scopes and _partition(policy, caller, p, deed) is None)
        return replace(call, reach=Reach(tuple(dict.fromkeys([*named, *own]))))
    return replace(call, reach=Reach(named, scopes))


def _partition(policy: Policy, caller: Caller, partition: Partition, deed: Deed) -> Refused | None:
    return next(_objections(policy, caller, partition, deed), None)


def _objections(policy: Policy, caller: Caller, partition: Partition, deed: Deed) -> Iterator[Refused]:
    scope = partition.scope
    if (refusal := _scope(policy, scope, deed)) is not None:
        yield refusal
    if scope == "global":
        if deed == "write" and "platform_admin" not in caller.roles:
            yield Refused("global", "writing to global needs the role platform_admin")
    elif caller.verified and not caller.own(partition):
        why = f"names a {scope} that isn't the caller's own" if partition.id != NOBODY else f"needs a caller with a {scope} of his own"
        yield Refused(f"{scope}_partition", f"the namespace {why}")
    elif scope == "team" and caller.verified and partition.id not in policy.teams:
        yield Refused("teams", "the team isn't in the policy's teams")


def _scope(policy: Policy, scope: Scope, deed: Deed) -> Refused | None:
    if MODE_OF[scope] not in policy.modes:
        return Refused("modes", f"scope {scope!r} needs the mode {MODE_OF[scope]!r}, which the policy has switched off")
    field = "write_scopes" if deed == "write" else "read_scopes"
    if scope not in (policy.write_scopes if deed == "write" else policy.read_scopes):
        return Refused(field, f"scope {scope!r} isn't in the policy's {field}")
    if scope == "global" and not policy.global_access:
        return Refused("global_access", "the policy's global_access is off")
    return None
