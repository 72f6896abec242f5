"""The LangGraph door: a store whose every operation passes the service.

Not an `AsyncBatchedBaseStore`: that class answers from a background task, where the caller's context is gone, merges
different callers' reads and fails the neighbours of a refused operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from .callers import Caller, current
from .drive import arun, run
from .errors import EngineUnavailable, InvalidRequest
from .filters import parse
from .items import MemoryItem, new_id
from .maintenance import Maintenance
from .operations import Answer, Forget, Get, Index, ListItems, ListNamespaces, Operation, Pattern, Remember, Search
from .scopes import check_key, check_labels, check_namespace, encodable
from .service import Service
from .values import encode

if TYPE_CHECKING:
    from .navin import Navin

#: Where LangGraph says "no limit".
_UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a store speaks for: the application as one of its agents, or a caller it is bound to."""

    #: The agent whose policy holds, for callers that name none.
    agent: str
    #: None where every operation needs a verified caller.
    application: Caller | None
    bound: Caller | None = None

    def caller(self) -> Caller:
        """Read in the caller's own context, before anything waits."""
        found = current(bound=self.bound, application=self.application)
        return found if found.agent_id is not None else replace(found, agent_id=self.agent)


class NavinStore(BaseStore):
    """Governed long-term memory behind LangGraph's verbs, sync and async, from any thread and event loop.

    A batch is decided and written whole or not at all; its reads see the state before its writes. Expired items are
    gone at once. A search with a query ranks by words and, where the store was opened with `index=`, by meaning.

    Raises, from every verb: `InvalidRequest` (a `ValueError`) for what can't be kept exactly, `PolicyDenied` (a
    `PermissionError`) for what the policy forbids, `EngineUnavailable` when PostgreSQL doesn't answer.
    """

    supports_ttl = True

    def __init__(
        self, service: Service, identity: Identity, *, ttl: TTLConfig | None = None, dots: bool = False, owner: Navin | None = None
    ) -> None:
        self._service = service
        self._identity = identity
        self._dots = dots
        self._owner = owner
        self.ttl_config = ttl

    @classmethod
    def from_conn_string(cls, conn_string: str, *, index: Any = None, ttl: Any = None, **settings: Any) -> NavinStore:
        """A store on your PostgreSQL, in the idiom of LangGraph's own: use it as `with` or `async with`, call `setup()` once.

        `index` and `ttl` are LangGraph's; `settings` are those of `Navin.open`.
        """
        from .navin import Navin

        return Navin.unprepared(dsn=conn_string, index=index, ttl=ttl, **settings).store

    def setup(self) -> None:
        """Create or upgrade Navin's tables. Any number of processes may do so at once."""
        self._owned().setup()

    async def asetup(self) -> None:
        """As `setup`."""
        await self._owned().asetup()

    def bound(self, caller: Caller) -> NavinStore:
        """A view of this store that acts for `caller` and nobody else."""
        if not isinstance(caller, Caller):
            raise InvalidRequest(f"bound() takes a Caller, got {type(caller).__name__}", field="caller")
        return NavinStore(self._service, replace(self._identity, bound=caller), ttl=self.ttl_config, dots=self._dots, owner=self._owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._owned().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._owned().aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._service.engine.name}>"

    def _owned(self) -> Navin:
        if self._owner is None:
            raise EngineUnavailable("this store was built from a service; whoever built it opens and closes it")
        return self._owner

    # --- LangGraph's two primitives ---------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out LangGraph's operations; results in their order."""
        caller, asked = self._identity.caller(), list(ops)
        answers = run(self._service.steps([self._operation(op) for op in asked], caller))
        return [_result(op, answer) for op, answer in zip(asked, answers, strict=True)]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`."""
        caller, asked = self._identity.caller(), list(ops)
        answers = await arun(self._service.steps([self._operation(op) for op in asked], caller))
        return [_result(op, answer) for op, answer in zip(asked, answers, strict=True)]

    # --- expiry -----------------------------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Delete what has expired, now; the number of items. Expired items are invisible anyway."""
        return self._maintenance().sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep in the background every so many minutes. `Navin.open()` has already started it."""
        seconds = None if sweep_interval_minutes is None else 60 * sweep_interval_minutes
        self._maintenance().start(seconds)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the background sweep; whether it ended within `timeout` seconds."""
        return self._maintenance().stop(timeout)

    def _maintenance(self) -> Maintenance:
        return self._owned().maintenance

    # --- LangGraph's words into ours --------------------------------------------------------------------------

    def _operation(self, op: Op) -> Operation:
        match op:
            case GetOp():
                return Get(check_namespace(op.namespace, dots=self._dots), check_key(op.key), bool(op.refresh_ttl))
            case SearchOp():
                return self._search(op)
            case PutOp():
                return self._put(op)
            case ListNamespacesOp():
                return self._list(op)
        raise InvalidRequest(f"ops: {type(op).__name__} is not an operation of a LangGraph store", field="ops")

    def _put(self, op: PutOp) -> Operation:
        namespace, key = check_namespace(op.namespace, dots=self._dots), check_key(op.key)
        if op.value is None:
            return Forget(namespace, key)
        # The application may go on changing its dict; what was checked is what is written.
        value = encode(op.value)
        return Remember(
            namespace, key, value, item_id=new_id(), document=cast("dict[str, Any]", op.value), index=_index(op.index), ttl=_seconds(op.ttl)
        )

    def _search(self, op: SearchOp) -> Operation:
        prefix, where = check_labels(op.namespace_prefix, dots=self._dots), parse(op.filter)
        limit, offset, refresh = _count("limit", op.limit), _count("offset", op.offset), bool(op.refresh_ttl)
        if op.query is not None and not isinstance(op.query, str):
            raise InvalidRequest(f"query must be text, got {type(op.query).__name__}", field="query")
        if op.query and ("\x00" in op.query or not encodable(op.query)):
            raise InvalidRequest("query must not hold NUL or a lone surrogate", field="query")
        if op.query:
            return Search(prefix, op.query, where, limit, offset, refresh)
        return ListItems(prefix, where, limit, offset, refresh)

    def _list(self, op: ListNamespacesOp) -> Operation:
        patterns: dict[str, list[Pattern]] = {"prefix": [], "suffix": []}
        for condition in op.match_conditions or ():
            patterns[_match_type(condition)].append(check_labels(condition.path, dots=self._dots))
        depth = op.max_depth
        if depth is not None and _count("max_depth", depth) < 1:
            raise InvalidRequest("max_depth must be 1 or more, or None", field="max_depth")
        limit, offset = _count("limit", op.limit), _count("offset", op.offset)
        return ListNamespaces(tuple(patterns["prefix"]), tuple(patterns["suffix"]), depth, limit, offset)


def _match_type(condition: MatchCondition) -> str:
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidRequest('match_type must be "prefix" or "suffix"', field="match_type")
    return condition.match_type


def _index(index: Any) -> Index:
    if index is None or index is False:
        return cast(Index, index)
    if isinstance(index, str) or not isinstance(index, Sequence) or not all(isinstance(path, str) for path in index):
        raise InvalidRequest("index must be False, None or a list of paths such as ['title', 'notes[*].text']", field="index")
    return tuple(index)


def _seconds(ttl: Any) -> float | None:
    """LangGraph's minutes."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not math.isfinite(ttl) or ttl <= 0:
        raise InvalidRequest("ttl must be a number of minutes above 0, or None for no expiry", field="ttl")
    return 60.0 * ttl


def _count(name: str, number: Any) -> int:
    if number is None:
        return _UNLIMITED if name == "limit" else 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidRequest(f"{name} must be a whole number, 0 or more", field=name)
    return min(number, _UNLIMITED)


def _result(op: Op, answer: Answer) -> Result:
    match op, answer:
        case GetOp(), MemoryItem() as found:
            return Item(
                value=found.value, key=found.key, namespace=found.namespace, created_at=found.created_at, updated_at=found.updated_at
            )
        case SearchOp(), list():
            return [_hit(found) for found in cast("list[MemoryItem]", answer)]
        case ListNamespacesOp(), list():
            return cast("list[tuple[str, ...]]", answer)
    return None


def _hit(found: MemoryItem) -> SearchItem:
    return SearchItem(found.namespace, found.key, found.value, found.created_at, found.updated_at, found.score)
