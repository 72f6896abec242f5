"""One server for the tests of the doors. It tells every parameter of a statement that fails, as a server may be set to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from databases import Database, fresh
from servers import server


@pytest.fixture(scope="session")
def door_server() -> Iterator[str]:
    """A superuser's DSN of an empty PostgreSQL 18 with pgvector."""
    with server(18) as dsn:
        yield make_conninfo(dsn, options="-c log_parameter_max_length_on_error=-1")


@pytest.fixture(scope="session")
def door_database(door_server: str) -> Iterator[Database]:
    """A database with Navin's schema; tests are kept apart by tenant."""
    with fresh(door_server, migrate=True) as database:
        yield database


@pytest.fixture
def empty_database(door_server: str) -> Iterator[Database]:
    """A database in which nothing was set up."""
    with fresh(door_server) as database:
        yield database


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex}"
