"""PostgreSQL's errors in our words, without its texts: their details quote stored values and addresses."""

from __future__ import annotations

from typing import Final

import psycopg

from langgraph_navin.engines.builtin.faults import LOST_STATEMENT, lost_statement
from langgraph_navin.errors import EngineRetryable, EngineUnavailable, InvalidRequest, NavinError

_MISSING: Final = frozenset({"42P01", "42703"})  # undefined_table, undefined_column
# The server undid the statement: serialization failure, deadlock, lock timeout, cancelled.
_UNDONE: Final = frozenset({"40001", "40P01", "55P03", "57014"})
# The server never took the session: too many connections, starting up or shutting down.
_REFUSED: Final = frozenset({"53300", "57P03"})
_LOST: Final = frozenset({"57P01", "57P02", "57P05"})  # the session was ended from outside


def translated(error: psycopg.Error, *, unknown: bool) -> NavinError:
    """The error to raise in the place of `error`: its class and SQLSTATE, never its text.

    `unknown` says that a change was under way, so that after a lost connection nobody knows whether
    it was made; then the answer isn't `EngineRetryable`. Raise the result outside the `except`
    block: within it, Python would chain the original, and its text, to it.
    """
    state = error.sqlstate or ""
    what = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
    if isinstance(error, psycopg.DataError):
        return InvalidRequest(f"PostgreSQL can't take a value of this request ({what}); nothing was changed", sqlstate=state)
    if state in _MISSING:
        return EngineUnavailable(f"LangGraph's checkpoint tables are missing or outdated ({what}): call setup() once", sqlstate=state)
    if state in LOST_STATEMENT:
        return lost_statement(state)
    if state in _UNDONE | _REFUSED:
        return EngineRetryable(f"PostgreSQL couldn't do this now ({what})", sqlstate=state)
    if is_lost(error):
        kind = EngineUnavailable if unknown else EngineRetryable
        return kind(f"PostgreSQL can't be reached or the connection was lost ({what})", sqlstate=state)
    return EngineUnavailable(f"PostgreSQL refused the operation ({what})", sqlstate=state)


def is_lost(error: psycopg.Error) -> bool:
    """Whether there is no session any more, or never was one."""
    if state := error.sqlstate:
        return state.startswith("08") or state in _LOST
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
