"""What a lost prepared statement is told as: what to set, and nothing of the statement."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg import errors as pg

from langgraph_navin.engines.builtin.faults import mapped
from langgraph_navin.errors import EngineUnavailable
from langgraph_navin.saver.failures import translated

TEXT = 'prepared statement "_pg3_7" does not exist: select hunter2'


def by_the_store(error: psycopg.Error) -> BaseException:
    return mapped(error, sent=True)


def by_the_saver(error: psycopg.Error) -> BaseException:
    return translated(error, unknown=True)


@pytest.mark.parametrize("told", [by_the_store, by_the_saver])
@pytest.mark.parametrize(("kind", "state"), [(pg.InvalidSqlStatementName, "26000"), (pg.DuplicatePreparedStatement, "42P05")])
def test_a_lost_statement_says_what_to_set(told: Callable[[psycopg.Error], BaseException], kind: type[psycopg.Error], state: str) -> None:
    found = told(kind(TEXT))
    assert isinstance(found, EngineUnavailable)
    assert not found.retryable
    assert found.details["sqlstate"] == state
    assert "prepare=False" in str(found)
    assert "hunter2" not in f"{found!r} {found.__cause__!r}"
