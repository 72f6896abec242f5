"""A writing process that is killed at any moment loses nothing that was acknowledged, and leaves no half of a write."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

import pytest

from databases import Database
from faults.crew import PATIENCE, Role
from faults.evidence import Evidence
from faults.tally import runs
from faults.writer import write_until_killed
from faults.writes import Ledger

#: How a process writes, and whether it embeds what it writes.
WAYS: dict[str, tuple[tuple[Role, ...], bool]] = {
    "single puts": (("puts",), False),
    "batches": (("batches",), False),
    "gathered puts": (("gathers",), False),
    "threads": (("puts", "batches", "batches", "upkeeps"), False),
    "vectors": (("batches", "gathers"), True),
}


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Starts writers from a server that has imported everything already: each is a process of its own all the same."""
    context = multiprocessing.get_context("forkserver")
    # The server doesn't know pytest's path, and what it can't import it leaves out without a word: so no module of these tests.
    context.set_forkserver_preload(["langgraph_navin.navin", "langgraph_navin.saver", "langchain_core.embeddings", "pytest"])
    return context


def killed(context: ForkServerContext, dsn: str, tenant: str, way: str, chance: random.Random) -> Ledger:
    """Start a writer, kill it some time after some writes, and give what it had said by then."""
    ledger, (hears, says) = Ledger(), context.Pipe(duplex=False)
    roles, vectors = WAYS[way]
    process = context.Process(target=write_until_killed, args=(dsn, tenant, roles, vectors, says))
    process.start()
    says.close()
    enough = chance.randint(1, 60)
    with hears:
        while len(ledger.acknowledged) < enough:
            assert hears.poll(PATIENCE), "the writer stands still"
            ledger.note(*hears.recv())
        # Any moment is as good as another: between two writes, and at any point within one.
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        drain(hears, ledger)
    process.join()
    process.close()
    return ledger


def drain(pipe: Connection, ledger: Ledger) -> None:
    """What it had said before it died counts too."""
    while True:
        try:
            ledger.note(*pipe.recv())
        except EOFError:
            return


@pytest.mark.parametrize(("way", "run"), runs(WAYS))
def test_what_was_acknowledged_outlives_the_writer(
    way: str, run: int, processes: ForkServerContext, database: Database, tenant: str, evidence: Evidence
) -> None:
    ledger = killed(processes, database.dsn, tenant, way, random.Random(run))
    evidence.judge(f"writer killed: {way}", run, tenant, ledger)
