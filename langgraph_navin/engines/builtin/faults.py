"""psycopg's errors in our words, without what PostgreSQL says about values.

A DETAIL or CONTEXT carries the row that failed into every traceback: what is kept of a foreign error is its class,
its SQLSTATE and the name of a constraint.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from ...abc import StalePolicy
from ...errors import Conflict, EngineRetryable, EngineUnavailable, InvalidRequest, NavinError

#: Raised by our functions: the policy changed, what stands there refuses, the space of vectors has other dimensions.
STALE, REFUSED, WRONG_DIMS = "NV001", "NV002", "NV003"

#: No prepared statement of this name, or one already: another server connection than the one it was prepared on.
LOST_STATEMENT = frozenset({"26000", "42P05"})

_SCHEMA_HINT = "call setup() once, or run `navin setup` with a role that may create schemas and roles"


class RefusedThere(Exception):
    """A write was refused by what stands in its place, and nothing was written. It never reaches a caller."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class Scrubbed(Exception):
    """What is kept of a foreign error: its class, SQLSTATE and constraint."""

    def __init__(self, error: psycopg.Error) -> None:
        constraint = error.diag.constraint_name if error.diag else None
        super().__init__(" ".join(filter(None, [type(error).__name__, error.sqlstate, constraint])))


def mapped(error: psycopg.Error, *, sent: bool) -> NavinError | StalePolicy | RefusedThere:
    """The error to raise instead of `error`, with a scrubbed cause.

    Args:
        sent: whether a change may have reached the server, so that a retry isn't known to be safe.
    """
    if error.sqlstate == STALE:
        return StalePolicy()
    if error.sqlstate == REFUSED:
        return RefusedThere(error.diag.message_primary or "")
    found = _mapped(error, sent)
    found.__cause__ = Scrubbed(error)
    return found


def _mapped(error: psycopg.Error, sent: bool) -> NavinError:
    state = error.sqlstate or ""
    if state == WRONG_DIMS:
        known, given = (error.diag.message_primary or "? ?").split()
        return wrong_dims(known, given)
    if isinstance(error, (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName)):
        return EngineUnavailable(f"this database doesn't hold Navin's tables ({state}): {_SCHEMA_HINT}", sqlstate=state)
    if isinstance(error, pg.InsufficientPrivilege):
        return EngineUnavailable(
            f"the database role may not do this ({state}): grant it navin_app, or pass admin_dsn for what an owner does", sqlstate=state
        )
    if state in LOST_STATEMENT:
        return lost_statement(state)
    if isinstance(error, (pg.SerializationFailure, pg.DeadlockDetected)):
        return Conflict(f"a concurrent change won ({state}); try again", sqlstate=state)
    if state.startswith("23"):
        return Conflict(
            f"something with this id or key is there already ({type(error).__name__}, {state}); nothing was changed", sqlstate=state
        )
    if state.startswith(("22", "54")) or isinstance(error, psycopg.DataError):
        return InvalidRequest(f"PostgreSQL refused a value ({type(error).__name__}{state and ', ' + state})", sqlstate=state)
    return unavailable(error, sent=sent)


def lost_statement(state: str) -> EngineUnavailable:
    return EngineUnavailable(
        f"a prepared statement was lost on its way ({state}): a connection pooler in transaction mode lies between and doesn't keep "
        "them; open with prepare=False",
        engine="builtin",
        sqlstate=state,
    )


def unavailable(error: psycopg.Error, *, sent: bool) -> EngineUnavailable:
    state = error.sqlstate or ""
    code = f"({type(error).__name__}{state and ', ' + state})"
    if sent:
        return EngineUnavailable(f"PostgreSQL didn't answer {code}; whether the change arrived isn't known", engine="builtin")
    # Connection errors (08) and a server that goes down (57P) are no answer; any other code is one, and undid the statement.
    answered = bool(state) and not state.startswith(("08", "57P"))
    told = "refused the statement, and nothing was changed" if answered else "didn't answer"
    return EngineRetryable(f"PostgreSQL {told} {code}", engine="builtin", answered=answered)


def wrong_dims(known: object, given: object) -> InvalidRequest:
    return InvalidRequest(
        f"index.dims: this tenant's memories have vectors of {known} dimensions, the configured model gives {given}; "
        "use the model they were made with, or another tenant or database",
        field="index.dims",
    )
