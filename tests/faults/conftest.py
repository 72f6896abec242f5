"""A server that may be crashed, a database on it for each module, and the count of what was seen."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from databases import Database, fresh
from faults.crew import PATIENCE
from faults.evidence import Evidence
from faults.running import Running
from faults.tally import PROVING, Tally
from langgraph_navin import Navin
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from proxy import Proxy
from servers import binaries, ground


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    counts = Tally()
    yield counts
    if PROVING:
        counts.write()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with ground() as place:
        embedded = EmbeddedServer(place / "navin", _binaries=binaries(18))
        try:
            # A machine that halts for a while must not look like a server that doesn't answer.
            dsn = make_conninfo(embedded.start(), connect_timeout=str(int(PATIENCE)))
            yield swift(Running(embedded, dsn, place / "navin"))
        finally:
            embedded.stop()


def swift(running: Running) -> Running:
    """Recover without opening every file of every database: one call to the file system is as good."""
    with psycopg.connect(running.dsn, autocommit=True) as connection:
        connection.execute("alter system set recovery_init_sync_method = 'syncfs'")
    return running


@pytest.fixture(scope="module")
def database(running: Running) -> Iterator[Database]:
    with fresh(running.dsn, migrate=True) as made:
        yield made


@pytest.fixture(scope="module")
def evidence(database: Database, tally: Tally) -> Iterator[Evidence]:
    """Reads through a memory of its own, which lives as long as the module. It ranks by words alone."""
    with Navin.unprepared(dsn=database.dsn) as reader:
        yield Evidence(database, reader, tally)


@pytest.fixture(scope="module")
def proxy(running: Running) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(Path(str(conninfo_to_dict(running.dsn)["host"])) / ".s.PGSQL.5432") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def proxied(proxy: Proxy, database: Database) -> Iterator[Navin]:
    """A memory that reaches its server through the proxy."""
    with Navin.unprepared(dsn=proxy.dsn(database.dsn)) as opened:
        yield opened


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex}"
