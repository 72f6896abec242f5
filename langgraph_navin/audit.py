"""What happened, as it is kept: one event per decision, without content (contract 11)."""

from __future__ import annotations

from dataclasses import dataclass

from .scopes import Scope


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A refused operation. Changes that were allowed are written by the engine, in the change's own transaction."""

    operation: str
    rule: str
    #: Empty where the operation named none.
    scopes: tuple[Scope, ...] = ()
