"""Who an operation is done for (contract 1, 8).

Two ways of knowing: *application identity* (the application is trusted and speaks for one tenant and one agent)
and *verified identity* (the caller comes from a bound store or from `acting_as`, never from a model or a client).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

from .errors import CallerUnknown, InvalidRequest
from .scopes import NOBODY, TENANT_LIMIT, UNIT, Partition, Scope, check_id

_acting: ContextVar[_Block | None] = ContextVar("navin_caller", default=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """The context of an operation, built by the server from a verified identity.

    `verified` is False only for the application's own identity: then the ids inside a namespace are believed.
    """

    tenant_id: str
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    teams: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    trace: str | None = None
    request_id: str | None = None
    verified: bool = True

    def __post_init__(self) -> None:
        check_id("tenant_id", self.tenant_id)
        if len(self.tenant_id.encode()) > TENANT_LIMIT:
            raise InvalidRequest(f"tenant_id must be at most {TENANT_LIMIT} bytes of UTF-8", field="tenant_id")
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and f.name.endswith("_id"):
                _check_member(f.name, value)
        if self.trace is not None:
            check_id("trace", self.trace)
        object.__setattr__(self, "teams", _texts("teams", self.teams, members=True))
        object.__setattr__(self, "roles", _texts("roles", self.roles))

    def pseudonym(self) -> str:
        """Who acts, for the journal: stable inside a tenant, without the id itself."""
        if not self.verified:
            return "application"
        kind, who = ("user", self.user_id) if self.user_id else ("agent", self.agent_id or "")
        return hashlib.sha256(UNIT.join((self.tenant_id, kind, who)).encode()).hexdigest()[:32]

    @property
    def session_key(self) -> str | None:
        """The id of this caller's session partition: the same thread id of another owner is another thread."""
        if self.session_id is None:
            return None
        return json.dumps([self.user_id, self.agent_id, self.session_id], ensure_ascii=False)

    def member(self, scope: Scope) -> str | None:
        """The id of this caller's own partition of a scope; None where there is none, or more than one."""
        return next((p.id for p in self.partitions() if p.scope == scope), None) if scope != "team" or len(self.teams) == 1 else None

    def own(self, partition: Partition) -> bool:
        """Whether a partition is this caller's own, whatever a policy says about its scope."""
        match partition.scope:
            case "user":
                return partition.id == self.user_id
            case "session":
                return partition.id == self.session_key
            case "agent" | "shared_agents":
                return partition.id == self.agent_id
            case "project":
                return partition.id == self.project_id
            case "team":
                return partition.id in self.teams
            case "organization":
                return partition.id == self.tenant_id
        return False

    def partitions(self) -> tuple[Partition, ...]:
        """Every partition that is this caller's own."""
        named = [
            Partition("user", self.user_id) if self.user_id else None,
            Partition("session", self.session_key) if self.session_key else None,
            Partition("agent", self.agent_id) if self.agent_id else None,
            Partition("shared_agents", self.agent_id) if self.agent_id else None,
            Partition("project", self.project_id) if self.project_id else None,
            Partition("organization", self.tenant_id),
        ]
        return (*(p for p in named if p), *(Partition("team", team) for team in sorted(self.teams)))


def _check_member(name: str, value: object) -> str:
    if (member := check_id(name, value)) == NOBODY:
        raise InvalidRequest(f"{name} must not be {NOBODY!r}: it names what belongs to no member", field=name)
    return member


def _texts(name: str, values: object, *, members: bool = False) -> frozenset[str]:
    if isinstance(values, str) or not isinstance(values, (frozenset, set, list, tuple)):
        raise InvalidRequest(f"{name} must be a set of texts, got {type(values).__name__}", field=name)
    check = _check_member if members else check_id
    return frozenset(check(name, value) for value in values)


def check_verified(caller: Caller) -> None:
    """Refuse the application's own identity where a verified one is meant."""
    if not caller.verified:
        raise InvalidRequest("caller must be a verified one; verified=False is the application's own identity", field="caller")


@dataclass(slots=True, eq=False)
class _Block:
    """One `acting_as`. Blocks held open inside generators may end in any order and in any context."""

    caller: Caller
    outer: _Block | None
    ended: bool = False

    def still_open(self) -> _Block | None:
        """The innermost block around this one that hasn't ended."""
        outer = self.outer
        while outer is not None and outer.ended:
            outer = outer.outer
        return outer


@contextmanager
def acting_as(caller: Caller) -> Iterator[Caller]:
    """Do everything inside the block for `caller`."""
    if not isinstance(caller, Caller):
        raise InvalidRequest(f"acting_as takes a Caller, got {type(caller).__name__}", field="caller")
    check_verified(caller)
    block = _Block(caller, _acting.get())
    _acting.set(block)
    try:
        yield caller
    finally:
        block.ended = True
        if _acting.get() is block:
            _acting.set(block.still_open())


def current(*, bound: Caller | None, application: Caller | None) -> Caller:
    """The caller of an operation that starts now, in this context.

    Args:
        bound: the caller of a bound view, if the operation came through one.
        application: the application's own identity, or None where a verified caller is required.

    Raises:
        CallerUnknown: no caller where one is required, or two sources that disagree.
    """
    block = _acting.get()
    acting = None if block is None else block.caller
    if bound is not None and acting is not None and bound != acting:
        raise CallerUnknown("the bound caller and acting_as() disagree; use one of them for an operation")
    found = bound or acting or application
    if found is None:
        raise CallerUnknown("no verified caller: use store.bound(caller) or `with acting_as(caller):` (require_caller=True)")
    return found
