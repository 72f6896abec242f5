"""The engine's upkeep, as plans: sweeping what has expired, and compacting the text index."""

from __future__ import annotations

from ...effects import Steps
from .lexemes import VERSION
from .statements import query

#: Items a statement: short transactions let writers through.
SWEEP_PORTION = 1_000
#: Documents; index rows this large stay as they are until something in them dies.
SMALL = 1_000
#: Small rows of a part before they are made into one.
MANY_ROWS = 64
#: Parts one round may compact.
PARTS = 20


def sweep(limit: int | None = None) -> Steps[int]:
    """Delete expired items, at most `limit` of them, and say how many there were."""
    swept = 0
    while limit is None or swept < limit:
        portion = SWEEP_PORTION if limit is None else min(SWEEP_PORTION, limit - swept)
        rows = yield from query("sweep", {"limit": portion}, writes=True)
        swept += rows[0][0]
        if rows[0][0] < portion:
            break
    return swept


def compact(*, dead: int = MANY_ROWS) -> Steps[int]:
    """Make few index rows of many, in parts with many small rows or at least `dead` dead versions; the number of parts."""
    parts = yield from query("uncompacted", {"lexer": VERSION, "small": SMALL, "rows": MANY_ROWS, "dead": dead, "limit": PARTS})
    for tenant, partition, classification in parts:
        part = {"tenant": tenant, "partition": partition, "classification": classification}
        yield from query("compact", part | {"lexer": VERSION, "small": SMALL, "rows": SMALL}, writes=True)
    return len(parts)
