"""The pgbouncer of this machine, and a server for it. `make test-pooler` says how to get one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from databases import Database, fresh
from langgraph_navin import Navin
from pgbouncer import Bouncer
from servers import server


@pytest.fixture(scope="session")
def bouncer() -> Bouncer:
    program = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    assert program is not None, "no pgbouncer: install it, or set PGBOUNCER=/path/to/pgbouncer"
    return Bouncer(program)


@pytest.fixture(scope="session")
def pg18() -> Iterator[str]:
    with server(18) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def database(pg18: str) -> Iterator[Database]:
    """With every table, made on a direct connection."""
    with fresh(pg18) as made:
        with Navin.open(made.dsn) as navin:
            assert navin.checkpointer is not None
        yield made
