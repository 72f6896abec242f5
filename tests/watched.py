"""What a server makes its clients wait for, seen from outside: proof that calls overlap, or that one holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest

from databases import Database
from store_subjects import Do, Subject, eventually

#: Statements on a subject's rows. Keys are of one test: ours shares its database with other tests, apart by tenant.
SQL: dict[str, dict[str, LiteralString]] = {
    "lock": {
        "navin": "select from navin.items where key = %s for update",
        "postgres": "select from store where key = %s for update",
    },
    "count": {
        "navin": "select count(*) from navin.items where key = %s",
        "postgres": "select count(*) from store where key = %s",
    },
    "minutes": {
        "navin": "select key, extract(epoch from expires_at - now()) / 60 from navin.items where key = any (%s)",
        "postgres": "select key, extract(epoch from expires_at - now()) / 60 from store where key = any (%s)",
    },
    "age": {
        "navin": "update navin.items set expires_at = now() + interval '5 min' where key = any (%s)",
        "postgres": "update store set expires_at = now() + interval '5 min' where key = any (%s)",
    },
}


def behind(subject: Subject, request: pytest.FixtureRequest) -> Database:
    """The database that a subject is on, from outside."""
    return Database(request.getfixturevalue("peer_dsn" if subject.name == "postgres" else "navin_dsn"))


def waiting(database: Database) -> int:
    """How many statements in this database wait for a lock."""
    statement = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return int(database.value(statement))


async def until_waiting(database: Database, count: int) -> None:
    """Wait until so many statements wait for a lock."""

    async def reached() -> bool:
        return await asyncio.to_thread(waiting, database) == count

    await eventually(reached)


@contextmanager
def meanwhile(database: Database, statement: LiteralString, *params: Any) -> Iterator[psycopg.Connection[Any]]:
    """A stranger's transaction stays open after this statement; it is rolled back at the end."""
    with psycopg.connect(database.dsn) as connection:
        connection.execute(statement, params or None)
        yield connection
        connection.rollback()


def begun(do: Do, verb: str, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
    """A verb under way, in either colour."""
    if do.colour == "sync":
        return asyncio.create_task(asyncio.to_thread(getattr(do.store, verb), *args, **kwargs))
    return asyncio.create_task(getattr(do.store, f"a{verb}")(*args, **kwargs))


async def fate(call: asyncio.Future[Any], database: Database) -> str:
    """Whether a call "answers", or "waits" for a lock that somebody keeps."""
    found: list[str] = []

    async def settled() -> bool:
        if call.done():
            call.result()
            found.append("answers")
        elif await asyncio.to_thread(waiting, database):
            found.append("waits")
        return bool(found)

    await eventually(settled)
    return found[0]
