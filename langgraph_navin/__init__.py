"""Governed memory and durable sessions for LangGraph.

    from langgraph_navin import Navin

    with Navin.open() as navin:
        graph = builder.compile(store=navin.store, checkpointer=navin.checkpointer)

Importing this package does nothing: what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callers import Caller, acting_as
    from .errors import (
        CallerUnknown,
        ConfirmationRequired,
        Conflict,
        EgressRefused,
        EngineRetryable,
        EngineUnavailable,
        InvalidNamespace,
        InvalidRequest,
        IsolationInsufficient,
        LegalHold,
        NavinError,
        NotFound,
        PersonalDataRefused,
        PolicyDenied,
        Unsupported,
    )
    from .navin import Navin
    from .policies.model import Policy
    from .saver import NavinSaver
    from .store import NavinStore

__version__ = "0.1.0"

#: Where a public name lives, if not among the errors.
_HOMES = {
    "Caller": ".callers",
    "acting_as": ".callers",
    "Navin": ".navin",
    "NavinSaver": ".saver",
    "NavinStore": ".store",
    "Policy": ".policies.model",
}

__all__ = [
    "Caller",
    "CallerUnknown",
    "ConfirmationRequired",
    "Conflict",
    "EgressRefused",
    "EngineRetryable",
    "EngineUnavailable",
    "InvalidNamespace",
    "InvalidRequest",
    "IsolationInsufficient",
    "LegalHold",
    "Navin",
    "NavinError",
    "NavinSaver",
    "NavinStore",
    "NotFound",
    "PersonalDataRefused",
    "Policy",
    "PolicyDenied",
    "Unsupported",
    "acting_as",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, ".errors"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
