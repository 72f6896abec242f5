"""Errors: the contract's codes and statuses, built-in bases that LangGraph retries rightly, no loss in a pickle."""

from __future__ import annotations

import pickle

import pytest
from langgraph.store.base import InvalidNamespaceError
from langgraph.types import RetryPolicy

import langgraph_navin
from langgraph_navin import errors
from langgraph_navin.errors import EngineRetryable, EngineUnavailable, InvalidNamespace, InvalidRequest, NavinError

#: Class, code, HTTP status, built-in base, whether LangGraph's default policy tries again.
TABLE: list[tuple[type[NavinError], str, int, type[Exception], bool]] = [
    (errors.InvalidRequest, "memory_invalid_request", 400, ValueError, False),
    (errors.InvalidNamespace, "memory_invalid_request", 400, ValueError, False),
    (errors.CallerUnknown, "memory_caller_unknown", 401, PermissionError, False),
    (errors.PolicyDenied, "memory_policy_denied", 403, PermissionError, False),
    (errors.IsolationInsufficient, "memory_isolation_insufficient", 403, PermissionError, False),
    (errors.NotFound, "memory_not_found", 404, LookupError, False),
    (errors.Conflict, "memory_conflict", 409, RuntimeError, False),
    (errors.ConfirmationRequired, "memory_confirmation_required", 409, RuntimeError, False),
    (errors.Unsupported, "memory_capability_unsupported", 422, ValueError, False),
    (errors.PersonalDataRefused, "memory_personal_data_refused", 422, ValueError, False),
    (errors.LegalHold, "memory_legal_hold", 423, RuntimeError, False),
    (errors.EngineUnavailable, "memory_engine_unavailable", 502, RuntimeError, False),
    (errors.EngineRetryable, "memory_engine_unavailable", 502, ConnectionError, True),
    (errors.EgressRefused, "memory_egress_refused", 502, PermissionError, False),
]
KINDS = [row[0] for row in TABLE]


def below(kind: type[NavinError]) -> set[type[NavinError]]:
    return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))


@pytest.mark.parametrize(("kind", "code", "status", "base", "again"), TABLE, ids=str)
def test_an_error_is_what_the_contract_says(kind: type[NavinError], code: str, status: int, base: type[Exception], again: bool) -> None:
    error = kind("it can't be", field="x")
    assert (error.code, error.status) == (code, status)
    assert isinstance(error, NavinError)
    assert isinstance(error, base)
    retry_on = RetryPolicy().retry_on
    assert callable(retry_on)
    assert retry_on(error) is again


def test_the_table_is_the_whole_tree() -> None:
    assert {kind for kind in below(NavinError) if kind.__module__ == errors.__name__} == {NavinError, *KINDS}


def test_every_error_can_be_imported_from_the_package() -> None:
    kinds: list[type[NavinError]] = [NavinError, *KINDS]
    for kind in kinds:
        assert getattr(langgraph_navin, kind.__name__) is kind


@pytest.mark.parametrize("kind", [NavinError, *KINDS])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_crosses_processes_whole(kind: type[NavinError], protocol: int) -> None:
    back = pickle.loads(pickle.dumps(kind("it can't be", field="x", limits=["a", "b"]), protocol))
    assert type(back) is kind
    assert str(back) == back.message == "it can't be"
    assert back.details == {"field": "x", "limits": ["a", "b"]}


def test_the_message_is_the_text_and_details_are_beside_it() -> None:
    error = InvalidRequest("key must be text", field="key")
    assert str(error) == error.message == "key must be text"
    assert error.args == ("key must be text",)
    assert error.details == {"field": "key"}


def test_a_bad_namespace_is_langgraphs_error_too() -> None:
    # LangGraph Server answers 400 to it.
    assert issubclass(InvalidNamespace, InvalidNamespaceError)


def test_only_a_safe_retry_says_so() -> None:
    assert EngineRetryable("away").retryable
    assert not EngineUnavailable("away").retryable
    assert isinstance(EngineRetryable("away"), EngineUnavailable)
