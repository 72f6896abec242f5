"""A writer that is killed at any moment loses nothing that was acknowledged, and leaves no half of a batch."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_navin import Navin
from servers import server

WRITER = Path(__file__).with_name("writer.py")
RUNS = 200 if os.environ.get("NAVIN_PROVE") else 5


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with server(18) as dsn:
        yield dsn


def killed_after(lines: int, dsn: str, tenant: str) -> int:
    """Start a writer, kill it once it has acknowledged so many writes, and give the last one that it acknowledged."""
    with subprocess.Popen([sys.executable, str(WRITER), dsn, tenant], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline(), "the writer ended by itself"
        process.kill()
        # What it had said before it died counts too.
        said = [line for line in process.stdout.read().splitlines() if line]
    return int(said[-1]) if said else lines - 1


@pytest.mark.parametrize("run", range(RUNS))
def test_acknowledged_writes_are_there_and_none_is_half(run: int, dsn: str) -> None:
    tenant = f"t-{uuid.uuid4().hex}"
    last = killed_after(random.Random(run).randint(1, 60), dsn, tenant)
    with Navin.open(dsn, tenant=tenant) as navin:
        found = {item.key for item in navin.store.search(("user", "u-1"), limit=100_000)}
        searchable = navin.store.search(("user", "u-1"), query=f"memory {last} a", limit=1)
    numbers = {int(key.partition("-")[0]) for key in found}
    assert numbers >= set(range(last + 1))
    assert found == {f"{number}-{half}" for number in numbers for half in "ab"}
    assert searchable[0].key == f"{last}-a"
