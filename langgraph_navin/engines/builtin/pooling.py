"""Prepared statements, and the poolers that lose them.

A pooler in transaction mode gives each transaction whichever server connection is free. A statement that was prepared
on one isn't there on the next, or worse: another client's statement of the same name is, and runs in its place.
"""

from __future__ import annotations

import secrets
from typing import Any, LiteralString

from psycopg import AsyncConnection, Connection

#: Executions of a statement before it is prepared; psycopg's own default.
THRESHOLD = 5

WHO_ANSWERS: LiteralString = "select pg_backend_pid()"


def prepare_if_direct(connection: Connection[Any] | AsyncConnection[Any], answer: tuple[Any, ...] | None) -> None:
    """Prepare statements on a new connection if PostgreSQL itself is at its other end.

    Args:
        answer: the row that `WHO_ANSWERS` gave.
    """
    # A server tells its process id as a session starts. A pooler tells a number of its own, to know who wants to cancel.
    if answer is not None and answer[0] == connection.info.backend_pid:
        connection.prepare_threshold = THRESHOLD


def name_apart(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Give a connection's prepared statements names that no other client has: one that is lost is then an error, never another's."""
    # psycopg counts the names from 0 in every connection, and has no public way to change that; a test holds this one.
    connection._prepared._prepared_idx = secrets.randbits(62)
