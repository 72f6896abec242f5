"""LangGraph's own migrations of its checkpoint tables, made safe for many processes at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import scalar_row

from langgraph_navin.errors import EngineRetryable

#: Seconds to wait for another process that is migrating.
PATIENCE: float = 60.0

_PAUSE: Final = 0.05
_LOCK: Final = 0x6E6176696E637074  # "navincpt"; session-level, one per database
_NEWEST: Final = len(PostgresSaver.MIGRATIONS) - 1
_EXISTS: Final = "SELECT to_regclass('checkpoint_migrations') IS NOT NULL"
_VERSION: Final = "SELECT coalesce(max(v), -1) FROM checkpoint_migrations"
_TAKE: Final = "SELECT pg_try_advisory_lock(%s)"
_GIVE: Final = "SELECT pg_advisory_unlock(%s)"

# Waiters ask again instead of waiting inside PostgreSQL. A session that waits for a lock holds a
# snapshot; CREATE INDEX CONCURRENTLY waits for every older snapshot; the two would be a deadlock.


def migrate(connection: psycopg.Connection[Any]) -> None:
    """Create or upgrade the checkpoint tables; any number of processes may call this at once.

    `connection` must be in autocommit mode. Where the tables are up to date nothing is locked and no
    right but reading `checkpoint_migrations` is needed.

    Raises:
        EngineRetryable: If another process has been migrating for longer than `PATIENCE` seconds.
    """
    give_up = time.monotonic() + PATIENCE
    while not _is_newest(connection):
        if _scalar(connection, _TAKE, _LOCK):
            try:
                return PostgresSaver(connection).setup()
            finally:
                _scalar(connection, _GIVE, _LOCK)
        _check_patience(give_up)
        time.sleep(_PAUSE)


async def amigrate(connection: psycopg.AsyncConnection[Any]) -> None:
    """As `migrate`."""
    give_up = time.monotonic() + PATIENCE
    while not await _ais_newest(connection):
        if await _ascalar(connection, _TAKE, _LOCK):
            try:
                return await AsyncPostgresSaver(connection).setup()
            finally:
                await _ascalar(connection, _GIVE, _LOCK)
        _check_patience(give_up)
        await asyncio.sleep(_PAUSE)


def _is_newest(connection: psycopg.Connection[Any]) -> bool:
    return bool(_scalar(connection, _EXISTS)) and _scalar(connection, _VERSION) >= _NEWEST


async def _ais_newest(connection: psycopg.AsyncConnection[Any]) -> bool:
    return bool(await _ascalar(connection, _EXISTS)) and await _ascalar(connection, _VERSION) >= _NEWEST


def _scalar(connection: psycopg.Connection[Any], statement: str, *values: int) -> Any:
    with connection.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(statement.encode(), values).fetchone()


async def _ascalar(connection: psycopg.AsyncConnection[Any], statement: str, *values: int) -> Any:
    async with connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchone()


def _check_patience(give_up: float) -> None:
    if time.monotonic() > give_up:
        raise EngineRetryable(f"another process has been migrating the checkpoint tables for more than {PATIENCE:g} seconds")
