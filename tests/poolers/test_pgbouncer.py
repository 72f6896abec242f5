"""Through a real pgbouncer in transaction mode: no tenant's row or setting at another's, thousands of times in `make prove`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from databases import Database, fresh
from langgraph_navin import Navin
from langgraph_navin.errors import EngineUnavailable
from pgbouncer import Bouncer
from pooled import NOTHING, crowd, left_behind

NS = ("user", "u")
#: How many rounds each of twelve visitors stays.
ROUNDS = 40 if os.environ.get("NAVIN_PROVE") else 5
colours = pytest.mark.parametrize("colour", ["sync", "async"])


@pytest.fixture
def through(bouncer: Bouncer, database: Database) -> Iterator[str]:
    """Three server connections, and no prepared statements kept."""
    with bouncer.before(database.dsn) as dsn:
        yield dsn


@colours
@pytest.mark.parametrize("prepare", [None, False])
def test_tenants_on_three_connections_see_their_own(through: str, database: Database, colour: str, prepare: bool | None) -> None:
    asked, wrong = crowd(through, colour, ROUNDS, prepare=prepare)
    assert wrong == []
    assert asked == 12 * ROUNDS * 9
    assert database.value("select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()") <= 3


@colours
def test_nothing_of_a_caller_stays_on_the_connection(bouncer: Bouncer, database: Database, colour: str) -> None:
    with bouncer.before(database.dsn, size=1) as dsn:
        before = left_behind(dsn)
        crowd(dsn, colour, rounds=1)
        assert left_behind(dsn) == before == NOTHING


def test_many_first_openings_through_a_pooler_succeed(bouncer: Bouncer, pg18: str) -> None:
    with fresh(pg18) as empty, bouncer.before(empty.dsn) as dsn:
        with ThreadPoolExecutor(4) as threads:
            opened = list(threads.map(lambda n: Navin.open(dsn, tenant=f"t{n}"), range(4)))
        for navin in opened:
            navin.store.put(NS, "k", {"mine": repr(navin)})
        assert [navin.store.get(NS, "k").value for navin in opened] == [{"mine": repr(navin)} for navin in opened]  # type: ignore[union-attr]
        for navin in opened:
            navin.close()


def test_statements_kept_by_the_pooler_may_be_prepared(bouncer: Bouncer, database: Database) -> None:
    """Where the version can't keep them, insisting is an error that says what to do, never a wrong answer."""
    with bouncer.before(database.dsn, kept=200) as dsn:
        if bouncer.keeps_statements:
            assert crowd(dsn, "sync", ROUNDS, prepare=True)[1] == []
        else:
            with pytest.raises(EngineUnavailable, match="open with prepare=False"):
                crowd(dsn, "sync", ROUNDS, prepare=True)


def test_statements_not_kept_are_errors_and_never_wrong_answers(through: str) -> None:
    with pytest.raises(EngineUnavailable, match="open with prepare=False"):
        crowd(through, "sync", ROUNDS, prepare=True)
