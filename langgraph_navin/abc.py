"""The seams: what a storage engine is, and what carries out its plans.

Each docstring is a list of obligations. `testing.EngineContract` tests them for any engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from .audit import AuditEvent
from .effects import Steps
from .operations import Access, Answer, Call


class Session(Protocol):
    """Performs the effects of one engine's plan, blocking."""

    def perform(self, effect: Any) -> Any:
        """Do what the effect asks for and return its answer; raise a `NavinError` for what went wrong outside."""


class AsyncSession(Protocol):
    """Performs the effects of one engine's plan, awaiting."""

    async def perform(self, effect: Any) -> Any:
        """As `Session.perform`."""


class Engine(Protocol):
    """Where memories come to rest.

    It must answer every call it is given, in order, inside the partitions, kinds and classifications that the calls
    and the access name, and nothing outside. It must not look at who asks in any other way.
    """

    @property
    def name(self) -> str:
        """The engine instance's id, for errors and capabilities."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What it announces. It must do all of it, and is asked for nothing else."""

    def steps(self, access: Access, calls: Sequence[Call]) -> Steps[list[Answer]]:
        """Plan a batch: answers in the order of the calls.

        Reads see the state before the batch's writes; the last write to a key wins. If `access.epoch` is not the
        tenant's epoch any more, it must raise `StalePolicy` and change nothing. A batch whose access is `tentative` comes
        again in parts when it raises anything but `EngineUnavailable`: it must have changed and recorded nothing then.
        """

    def refuse(self, access: Access, events: Sequence[AuditEvent]) -> Steps[None]:
        """Plan the keeping of refusals, in a transaction of their own."""

    def epoch(self, tenant: str) -> Steps[int]:
        """Plan the reading of the tenant's policy epoch: 0 until a policy is first saved."""

    def session(self) -> AbstractContextManager[Session]:
        """Whatever performs this engine's effects."""

    def asession(self) -> AbstractAsyncContextManager[AsyncSession]:
        """The same for the other colour."""


class StalePolicy(Exception):
    """The policy changed since the decision. The service decides again; it never reaches a caller."""
