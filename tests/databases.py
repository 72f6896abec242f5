"""Databases for tests: made, migrated, looked into as a superuser, dropped."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Composed, Identifier

from langgraph_navin.engines.builtin import schema
from langgraph_navin.engines.builtin.connections import Connections
from langgraph_navin.engines.builtin.engine import BuiltinEngine
from langgraph_navin.engines.builtin.session import configure


class Database:
    """One database, seen by its superuser."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._connections = Connections(dsn, configure=configure)

    @cached_property
    def engine(self) -> BuiltinEngine:
        """The builtin engine on it, without a model."""
        return BuiltinEngine(self._connections)

    def rows(self, statement: LiteralString | SQL | Composed, *params: Any) -> list[tuple[Any, ...]]:
        """What a statement answers, row-level security aside."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, params or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, statement: LiteralString, *params: Any) -> Any:
        return self.rows(statement, *params)[0][0]

    def close(self) -> None:
        self._connections.close()


@contextmanager
def fresh(server_dsn: str, *, migrate: bool = False) -> Iterator[Database]:
    """A new database on a server, dropped at the end."""
    name = f"navin_{uuid.uuid4().hex}"
    _on(server_dsn, "create database {}", name)
    database = Database(make_conninfo(server_dsn, dbname=name))
    try:
        if migrate:
            schema.migrate(database.dsn)
        yield database
    finally:
        database.close()
        _on(server_dsn, "drop database {} with (force)", name)


def _on(dsn: str, statement: LiteralString, name: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SQL(statement).format(Identifier(name)))
