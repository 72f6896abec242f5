"""One server of each major version for all engine tests; each test works in a tenant or a database of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from databases import Database, fresh
from servers import server


@pytest.fixture(scope="session")
def pg18() -> Iterator[str]:
    """A superuser's DSN of an empty PostgreSQL 18 with pgvector."""
    with server(18) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def pg16() -> Iterator[str]:
    """The same of a PostgreSQL 16."""
    with server(16) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def migrated18(pg18: str) -> Iterator[Database]:
    """A database with Navin's schema, and an engine on it."""
    with fresh(pg18, migrate=True) as database:
        yield database


@pytest.fixture(scope="session")
def migrated16(pg16: str) -> Iterator[Database]:
    with fresh(pg16, migrate=True) as database:
        yield database


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex}"
