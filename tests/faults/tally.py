"""How often each fault is tried, and what was seen over all runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

from frame import machine

PROVING = bool(os.environ.get("NAVIN_PROVE"))
#: Runs of each kind of fault.
RUNS = 1_000 if PROVING else 20
#: Where the counts are kept.
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "faults.json"


def runs(ways: Iterable[str]) -> list[tuple[str, int]]:
    """The runs of one kind of fault, its ways in turn. A run's number is its seed."""
    return list(zip(cycle(ways), range(RUNS), strict=False))


@dataclass
class Count:
    """One kind of fault. `in_flight` are writes whose fate the caller wasn't told, `found` how many of them were carried out."""

    runs: int = 0
    acknowledged: int = 0
    refused: int = 0
    in_flight: int = 0
    found: int = 0
    lost: int = 0
    half: int = 0
    #: Any other rule that was broken: an event without its memory, a text that isn't found, an error that nothing explains.
    other: int = 0


class Tally:
    """Counts by kind of fault."""

    def __init__(self) -> None:
        self.kinds: dict[str, Count] = {}

    def of(self, kind: str) -> Count:
        return self.kinds.setdefault(kind, Count())

    def write(self) -> None:
        """Keep the counts beside the benchmarks' results."""
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"kind": kind, **asdict(count)} for kind, count in sorted(self.kinds.items())]
        RESULTS.write_text(json.dumps({"benchmark": "faults", "machine": machine(), "rows": rows}, indent=2) + "\n")
