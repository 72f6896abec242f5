"""The LangGraph door: a store whose every operation passes the service.

Not an `AsyncBatchedBaseStore`: that class answers from a background task, where the caller's context is gone, merges
different callers' reads and fails the neighbours of a refused operation.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from langgraph.store.base import Op, Result, TTLConfig

from ..callers import Caller, check_verified, current
from ..drive import arun, run
from ..errors import EngineUnavailable, InvalidRequest
from ..maintenance import Maintenance
from ..operations import Answer
from ..service import Service
from .coalesce import Coalescer
from .verbs import Verbs
from .words import Words, result

if TYPE_CHECKING:
    from ..navin import Navin


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


class NavinStore(Verbs):
    """Governed long-term memory behind LangGraph's verbs, sync and async, from any thread and event loop.

    A batch is decided and written whole or not at all; its reads see the state before its writes. Expired items are
    gone at once. A search with a query ranks by words and, where the store was opened with `index=`, by meaning.

    Raises, from every verb: `InvalidRequest` (a `ValueError`) for what can't be kept exactly, `PolicyDenied` (a
    `PermissionError`) for what the policy forbids, `EngineUnavailable` when PostgreSQL doesn't answer.
    """

    supports_ttl = True

    def __init__(
        self,
        service: Service,
        identity: Identity,
        *,
        ttl: TTLConfig | None = None,
        dots: bool = False,
        owner: Navin | None = None,
        together: Coalescer | None = None,
    ) -> None:
        self._service = service
        self._identity = identity
        self._together = together or Coalescer(service)
        self._words = Words(dots)
        self._owner = owner
        self.ttl_config = ttl

    @classmethod
    def from_conn_string(cls, conn_string: str, *, index: Any = None, ttl: Any = None, **settings: Any) -> NavinStore:
        """A store on your PostgreSQL, in the idiom of LangGraph's own: use it as `with` or `async with`, call `setup()` once.

        `index` and `ttl` are LangGraph's; `settings` are those of `Navin.open`.
        """
        from ..navin import Navin

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
        check_verified(caller)
        view = copy.copy(self)
        view._identity = replace(self._identity, bound=caller)
        return view

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
        answers = run(self._service.steps([self._words.operation(op) for op in asked], caller))
        return [result(op, answer) for op, answer in zip(asked, answers, strict=True)]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`. Single operations of one caller that come in the same tick of a loop travel together."""
        asked = list(ops)
        if len(asked) == 1:
            return [result(asked[0], await self._alone(asked[0]))]
        caller = self._identity.caller()
        answers = await arun(self._service.steps([self._words.operation(op) for op in asked], caller))
        return [result(op, answer) for op, answer in zip(asked, answers, strict=True)]

    def _alone(self, op: Op) -> Awaitable[Answer]:
        caller = self._identity.caller()
        return self._together.ask(self._words.operation(op), caller)

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
