"""Connections that end while nobody uses them: no caller ever learns of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from faults.crew import EVERYONE, Crew
from faults.evidence import Evidence
from faults.tally import runs
from faults.writes import Ledger, caller
from langgraph_navin import Navin
from proxy import Proxy

#: Pauses in one run.
TIMES = 2


def timed_out(proxy: Proxy, chance: random.Random) -> None:
    """All of them, after some milliseconds."""
    with proxy.closing_idle(chance.uniform(0.001, 0.02)):
        proxy.wait_for_links(0)


def closed(proxy: Proxy, chance: random.Random) -> None:
    """Some of them, with a FIN."""
    proxy.close(chance.randint(1, proxy.links), chance=chance)


def reset(proxy: Proxy, chance: random.Random) -> None:
    """Some of them, with a RST."""
    proxy.close(chance.randint(1, proxy.links), reset=True, chance=chance)


WAYS: dict[str, Callable[[Proxy, random.Random], None]] = {"timed out": timed_out, "closed": closed, "reset": reset}


@pytest.mark.parametrize(("way", "run"), runs(WAYS))
def test_nobody_notices_that_idle_connections_end(
    way: str, run: int, proxy: Proxy, proxied: Navin, tenant: str, evidence: Evidence
) -> None:
    ledger, chance = Ledger(), random.Random(run)
    with Crew(proxied.store.bound(caller(tenant)), ledger, EVERYONE) as crew:
        for _ in range(TIMES):
            crew.turn()
            with crew.rest():
                WAYS[way](proxy, chance)
        crew.turn()
    evidence.judge(f"idle connections {way}", run, tenant, ledger, crew.unexcused)
    assert not ledger.in_flight, f"idle connections {way}, seed {run}"
