"""Opens the store a test asks for: one server and two databases for all, an empty store for each test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from psycopg.conninfo import make_conninfo

from servers import server
from store_subjects import SUBJECTS, Do, Opened, Subject, indexed


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """A superuser's DSN of a running PostgreSQL 18 with pgvector."""
    with server(18) as dsn:
        yield dsn


def _fresh_database(dsn: str, name: str) -> Iterator[str]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    yield make_conninfo(dsn, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(name)))


@pytest.fixture(scope="session")
def navin_dsn(server_dsn: str) -> Iterator[str]:
    """A database for our store; tests are kept apart by tenant."""
    yield from _fresh_database(server_dsn, f"navin_{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def peer_dsn(server_dsn: str) -> Iterator[str]:
    """A database with the tables of LangGraph's PostgreSQL store, vectors included."""
    for dsn in _fresh_database(server_dsn, f"peer_{uuid.uuid4().hex}"):
        with PostgresStore.from_conn_string(dsn, index=indexed()) as store:  # type: ignore[arg-type]
            store.setup()
        yield dsn


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    """The store and colour this run is about."""
    return Subject.parse(request.param)


async def _open_memory(stack: AsyncExitStack, subject: Subject, options: dict[str, Any]) -> BaseStore:
    return InMemoryStore(index=options.get("index"))


async def _open_postgres(stack: AsyncExitStack, subject: Subject, dsn: str, options: dict[str, Any]) -> BaseStore:
    if subject.colour == "sync":
        return stack.enter_context(PostgresStore.from_conn_string(dsn, **options))
    return await stack.enter_async_context(AsyncPostgresStore.from_conn_string(dsn, **options))


async def _open_navin(stack: AsyncExitStack, subject: Subject, dsn: str, tenant: str, options: dict[str, Any]) -> BaseStore:
    from langgraph_navin import Navin

    navin = Navin.open(dsn, tenant=tenant, **options)
    if subject.colour == "sync":
        stack.enter_context(navin)
    else:
        await stack.enter_async_context(navin)
    return navin.store


def _empty_peer(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("DELETE FROM store")


@pytest.fixture
async def opened(subject: Subject, request: pytest.FixtureRequest) -> AsyncIterator[Opened]:
    """Opens the subject with options (`index`, `ttl`); a second call opens a second door to the same items."""
    tenant = f"t-{uuid.uuid4().hex}"
    dsn = "" if subject.name == "memory" else request.getfixturevalue("peer_dsn" if subject.name == "postgres" else "navin_dsn")
    if subject.name == "postgres":
        _empty_peer(dsn)
    async with AsyncExitStack() as stack:

        async def open_one(**options: Any) -> Do:
            if subject.name == "memory":
                store = await _open_memory(stack, subject, options)
            elif subject.name == "postgres":
                store = await _open_postgres(stack, subject, dsn, options)
            else:
                store = await _open_navin(stack, subject, dsn, tenant, options)
            return Do(subject, store)

        yield open_one


@pytest.fixture
async def do(opened: Opened) -> Do:
    """The subject, empty, without options."""
    return await opened()
