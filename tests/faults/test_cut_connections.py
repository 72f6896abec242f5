"""Connections that end in the middle of an operation: reads succeed all the same, writes say that their fate isn't known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from databases import Database
from faults.crew import EVERYONE, PATIENCE, Crew
from faults.evidence import Evidence
from faults.running import until
from faults.tally import RUNS, runs
from faults.writes import USER, Ledger, caller
from langgraph_navin import Navin
from langgraph_navin.errors import EngineRetryable, EngineUnavailable
from proxy import Cut, Direction, Proxy

#: Faults in one run.
TIMES = 3
#: One backend, where asked for one that is at work; the choice is the server's.
TERMINATE: LiteralString = """
select pg_terminate_backend(pid, 60000) from (
  select pid from pg_stat_activity
  where datname = current_database() and application_name = 'navin' and (state = 'active' or not %s) order by random() limit 1) x"""


@pytest.fixture(scope="module")
def direct(database: Database) -> Iterator[Navin]:
    with Navin.unprepared(dsn=database.dsn) as opened:
        yield opened


@pytest.mark.parametrize("run", range(RUNS))
def test_backends_that_are_terminated(run: int, direct: Navin, database: Database, tenant: str, evidence: Evidence) -> None:
    ledger, chance = Ledger(), random.Random(run)
    with Crew(direct.store.bound(caller(tenant)), ledger, EVERYONE) as crew:
        for _ in range(TIMES):
            crew.turn()
            busy = chance.random() < 0.8
            with crew.fault():
                until(lambda busy=busy: database.rows(TERMINATE, busy), "nobody works")  # type: ignore[misc]
        crew.turn()
    evidence.judge("backend terminated", run, tenant, ledger, crew.unexcused)


@pytest.mark.parametrize(("direction", "run"), runs(["request", "answer"]))
def test_connections_that_are_cut(direction: Direction, run: int, proxy: Proxy, proxied: Navin, tenant: str, evidence: Evidence) -> None:
    ledger, chance = Ledger(), random.Random(run)
    with Crew(proxied.store.bound(caller(tenant)), ledger, EVERYONE) as crew:
        for _ in range(TIMES):
            crew.turn()
            cut = Cut(direction, chance.random(), reset=chance.random() < 0.5)
            with crew.fault():
                proxy.cut = cut
                assert cut.done.wait(PATIENCE), f"nothing was cut, seed {run}"
        crew.turn()
    evidence.judge(f"{direction} cut", run, tenant, ledger, crew.unexcused)


@pytest.mark.parametrize(("direction", "run"), runs(["request", "answer"]))
def test_connections_that_are_cut_while_they_are_made(
    direction: Direction, run: int, proxy: Proxy, proxied: Navin, tenant: str, evidence: Evidence
) -> None:
    ledger, chance = Ledger(), random.Random(run)
    with Crew(proxied.store.bound(caller(tenant)), ledger, EVERYONE) as crew:
        crew.turn()
        cut = Cut(direction, chance.random(), reset=chance.random() < 0.5, handshake=True)
        with crew.fault(reads_fail=True):
            with crew.rest():
                proxy.close(proxy.links)
                proxy.cut = cut
            assert cut.done.wait(PATIENCE), f"nothing was cut, seed {run}"
        crew.turn()
    evidence.judge(f"{direction} of a handshake cut", run, tenant, ledger, crew.unexcused)
    # Nothing was sent yet, and the caller is told so.
    assert not ledger.in_flight, f"{direction} of a handshake cut, seed {run}"


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_server_that_accepts_and_says_nothing_is_given_up(colour: str, proxy: Proxy, database: Database) -> None:
    with Navin.unprepared(dsn=proxy.dsn(database.dsn, connect_timeout="2")) as navin, proxy.silent():
        store = navin.store
        with pytest.raises(EngineRetryable, match="ConnectionTimeout"):
            store.put(USER, "k", {}) if colour == "sync" else asyncio.run(store.aput(USER, "k", {}))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_reset_that_only_psycopg_has_noticed(colour: str, direct: Navin, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, deaf = direct.store.bound(caller(tenant)), Deaf(monkeypatch)
    deaf.next = True
    with pytest.raises(EngineUnavailable, match="whether the change arrived isn't known"):
        store.put(USER, "k", {"n": 1}) if colour == "sync" else asyncio.run(store.aput(USER, "k", {"n": 1}))
    deaf.next = True
    found = store.get(USER, "k") if colour == "sync" else asyncio.run(store.aget(USER, "k"))
    assert not deaf.next
    assert found is not None
    assert found.value == {"n": 1}


class Deaf:
    """The next statement of ours is carried out, and psycopg fails as it does when a reset reaches it while it waits.

    libpq hasn't read anything then, so that the connection doesn't look closed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.next = False
        execute, aexecute = psycopg.Connection.execute, psycopg.AsyncConnection.execute

        def executed(connection: Any, query: Any, *args: Any, **options: Any) -> Any:
            return self._heard(query, execute(connection, query, *args, **options))

        async def aexecuted(connection: Any, query: Any, *args: Any, **options: Any) -> Any:
            return self._heard(query, await aexecute(connection, query, *args, **options))

        monkeypatch.setattr(psycopg.Connection, "execute", executed)
        monkeypatch.setattr(psycopg.AsyncConnection, "execute", aexecuted)

    def _heard(self, query: Any, cursor: Any) -> Any:
        if self.next and "navin." in str(query):
            self.next = False
            raise psycopg.OperationalError("connection socket closed")
        return cursor
