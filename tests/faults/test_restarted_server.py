"""A server that stops or crashes, and comes back: only what was in flight or asked meanwhile fails, and nothing is lost."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from databases import Database
from faults.crew import EVERYONE, Crew
from faults.evidence import Evidence
from faults.running import Running
from faults.tally import runs
from faults.writes import Ledger, caller
from langgraph_navin import Navin


@pytest.fixture(scope="module")
def navin(database: Database) -> Iterator[Navin]:
    """One memory for all runs: its connections go through every crash."""
    with Navin.unprepared(dsn=database.dsn) as opened:
        yield opened


WAYS: dict[str, Callable[[Running], None]] = {
    "immediate": lambda running: running.restart(signal.SIGQUIT),
    "fast": lambda running: running.restart(signal.SIGINT),
    "crash": Running.crash,
}


@pytest.mark.parametrize(("way", "run"), runs(WAYS))
def test_a_restart_costs_only_what_was_in_flight(
    way: str, run: int, running: Running, navin: Navin, tenant: str, evidence: Evidence
) -> None:
    ledger, chance = Ledger(), random.Random(run)
    with Crew(navin.store.bound(caller(tenant)), ledger, EVERYONE) as crew:
        crew.turn()
        # Any moment is as good as another.
        time.sleep(chance.uniform(0, 0.02))
        with crew.fault(reads_fail=True):
            WAYS[way](running)
        # Every worker's first operation after it succeeds.
        crew.turn()
    evidence.judge(f"server restarted: {way}", run, tenant, ledger, crew.unexcused)
