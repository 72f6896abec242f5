"""What can go wrong, as one tree (contract 3).

    NavinError
    ├── InvalidRequest          ValueError       memory_invalid_request          400
    ├── CallerUnknown           PermissionError  memory_caller_unknown           401
    ├── PolicyDenied            PermissionError  memory_policy_denied            403
    ├── IsolationInsufficient   PermissionError  memory_isolation_insufficient   403
    ├── NotFound                LookupError      memory_not_found                404
    ├── Conflict                RuntimeError     memory_conflict                 409
    ├── ConfirmationRequired    RuntimeError     memory_confirmation_required    409
    ├── Unsupported             ValueError       memory_capability_unsupported   422
    ├── PersonalDataRefused     ValueError       memory_personal_data_refused    422
    ├── LegalHold               RuntimeError     memory_legal_hold               423
    ├── EngineUnavailable       RuntimeError     memory_engine_unavailable       502
    │   └── EngineRetryable     ConnectionError  the same code; trying again is safe
    └── EgressRefused           PermissionError  memory_egress_refused           502

The built-in bases are chosen for LangGraph's default retry policy: it retries a `ConnectionError`
and leaves `ValueError`, `PermissionError`, `LookupError` and `RuntimeError` alone.

No message, detail or `repr` holds a credential or the content of a memory.
"""

from __future__ import annotations

from typing import ClassVar

from langgraph.store.base import InvalidNamespaceError

#: What `details` may hold: names, numbers and codes, never content.
Detail = str | int | float | bool | None | list[str]


class NavinError(Exception):
    """Anything `langgraph_navin` raises on purpose.

    `code` and `status` are the contract's; `details` names the field, rule or engine concerned.
    """

    code: ClassVar[str] = "memory_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = details

    def __reduce__(self) -> tuple[object, ...]:
        # An error crosses process borders (queues, executors) with its details.
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(kind: type[NavinError], message: str, details: dict[str, Detail]) -> NavinError:
    return kind(message, **details)


class InvalidRequest(NavinError, ValueError):
    """A value that can't be right. The message says which field, what was wrong and what would be right."""

    code, status = "memory_invalid_request", 400


class InvalidNamespace(InvalidRequest, InvalidNamespaceError):
    """A namespace that breaks LangGraph's rules or ours; LangGraph's own error type catches it too."""


class CallerUnknown(NavinError, PermissionError):
    """No verified caller where one is required."""

    code, status = "memory_caller_unknown", 401


class PolicyDenied(NavinError, PermissionError):
    """The policy says no. `details["rule"]` names the rule."""

    code, status = "memory_policy_denied", 403


class IsolationInsufficient(NavinError, PermissionError):
    """The engine instance guarantees less separation than the policy requires."""

    code, status = "memory_isolation_insufficient", 403


class NotFound(NavinError, LookupError):
    """Absent, or not visible to this caller: the two can't be told apart."""

    code, status = "memory_not_found", 404


class Conflict(NavinError, RuntimeError):
    """A concurrent change lost, or a create met something that exists."""

    code, status = "memory_conflict", 409


class ConfirmationRequired(NavinError, RuntimeError):
    """A purge without `confirm`."""

    code, status = "memory_confirmation_required", 409


class Unsupported(NavinError, ValueError):
    """Outside the engine's announced capabilities."""

    code, status = "memory_capability_unsupported", 422


class PersonalDataRefused(NavinError, ValueError):
    """Personal data where the policy allows none. Says which type, never the value."""

    code, status = "memory_personal_data_refused", 422


class LegalHold(NavinError, RuntimeError):
    """The item is held: it can't be changed, forgotten or expired."""

    code, status = "memory_legal_hold", 423


class EngineUnavailable(NavinError, RuntimeError):
    """The engine can't be reached or can't do this now. Trying again isn't known to be safe."""

    code, status = "memory_engine_unavailable", 502
    retryable: ClassVar[bool] = False

    @property
    def answered(self) -> bool:
        """Whether the engine is there and refused this once: something else may well be done by it now."""
        return self.details.get("answered") is True


class EngineRetryable(EngineUnavailable, ConnectionError):
    """As `EngineUnavailable`, and nothing was changed: trying again is safe."""

    retryable: ClassVar[bool] = True


class EgressRefused(NavinError, PermissionError):
    """A host, port or scheme that wasn't declared."""

    code, status = "memory_egress_refused", 502
