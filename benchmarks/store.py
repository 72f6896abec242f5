"""NavinStore beside LangGraph's PostgresStore, one operation at a time, on one server, each in a database of its own.

Ours keeps a history and a journal of every change and separates rows by row-level security: there is no way to switch
that off. PostgresStore has a pool of four connections. Three ways to use both:

    plain    nothing is searchable by words or meaning on either side (every put says index=False): the same job
    text     ours indexes the words of every value, as it does by default; theirs has no such index: ours does more
    vectors  both embed the field "text" in 384 dimensions (ours indexes its words too), with PostgresStore's default index.
             At most 2,000 rows, since that index takes some 300 vectors a second; the embeddings themselves cost nothing

A fourth part, `parts`, takes a get and a put of ours to pieces. At the end stand the floors: what must hold, what was
measured, and whether it held. The median of `batch_…` rows is of a whole batch, their `per s` counts items.

    python benchmarks/store.py --only plain --operation get
    python benchmarks/store.py --rows 1000000 --json benchmarks/results/store_1000000.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from langgraph.store.base import BaseStore, PutOp

from calls import NAMES, OPERATIONS
from frame import RUNS, Report, Row, Sample, compare, options, reporting, server
from parts import take_apart
from shelves import CONFIGS, Config, Sides, opened

#: Rows in `vectors`, at most.
EMBEDDED = 2_000
#: Seconds that one turn of one subject should take at most; slow calls are made less often, by all subjects alike.
TURN = 4.0
#: Calls that tell how slow an operation is.
PROBE = 3

# --- floors -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Floor:
    """What must hold of one operation, as ours by theirs: a median at most, a rate at least."""

    config: str
    operation: str
    figure: Literal["median_ms", "per_s"]
    limit: float
    theirs: str = "PostgresStore"

    def judged(self, rows: Sequence[Row]) -> dict[str, object] | None:
        """The floor with what was measured, or None where it wasn't."""
        found = {row.subject: getattr(row, self.figure) for row in rows if (row.config, row.operation) == (self.config, self.operation)}
        if "NavinStore" not in found or self.theirs not in found:
            return None
        measured = round(found["NavinStore"] / found[self.theirs], 3)
        held = measured <= self.limit if self.figure == "median_ms" else measured >= self.limit
        return asdict(self) | {"measured": measured, "held": held}


FLOORS = [
    Floor("plain", "get", "median_ms", 0.75),
    Floor("plain", "put", "median_ms", 1.3),
    Floor("plain", "put_update", "median_ms", 1.3),
    Floor("plain", "batch_put_100", "median_ms", 1.3),
    Floor("plain", "batch_put_100_update", "median_ms", 1.3),
    Floor("plain", "batch_get_100", "median_ms", 0.25),
    Floor("plain", "search_filter", "median_ms", 0.6),
    Floor("plain", "list_namespaces", "median_ms", 1.2),
    Floor("plain", "threads_16_put", "per_s", 2.0),
    Floor("plain", "gather_10000_put", "per_s", 2.0, "AsyncPostgresStore"),
    Floor("vectors", "put", "median_ms", 0.5),
    Floor("vectors", "put_update", "median_ms", 0.5),
    Floor("vectors", "batch_put_100", "median_ms", 0.1),
    Floor("vectors", "batch_put_100_update", "median_ms", 0.1),
    Floor("vectors", "search_vector", "median_ms", 0.6),
]


def judged(rows: Sequence[Row], floors: Sequence[Floor] = FLOORS) -> list[dict[str, Any]]:
    """Every floor that was measured."""
    return [verdict for floor in floors if (verdict := floor.judged(rows)) is not None]


def verdicts(judgements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The floors as lines of a table."""
    yield f"{'floor: NavinStore / …':<34}{'':<22}{'figure':>10}{'floor':>10}{'measured':>10}"
    for floor in judgements:
        sign, state = "≤" if floor["figure"] == "median_ms" else "≥", "held" if floor["held"] else "LOST"
        name, limit = f"{floor['operation']}, {floor['config']}", f"{sign} {floor['limit']}"
        yield f"{name:<34}{floor['theirs']:<22}{floor['figure']:>10}{limit:>10}{floor['measured']:>10.3f}  {state}"


# --- the run ------------------------------------------------------------------------------------------------------


#: What both must answer alike, before and after the writes: otherwise they didn't do the same job.
QUESTIONS: Mapping[str, Callable[[Any, PutOp], object]] = {
    "get": lambda store, op: store.get(op.namespace, op.key).value,
    "search_filter": lambda store, op: len(store.search(op.namespace[:2], filter={"cat": "c3"}, limit=10)),
    "list_namespaces": lambda store, op: sorted(store.list_namespaces(prefix=op.namespace[:2], limit=100)),
    "every item": lambda store, op: len(store.search(op.namespace[:2], limit=10_000_000)),
}


def disagreements(sides: Sides, config: Config) -> list[str]:
    """The questions about one user that the two answer differently."""
    op = sides.ours.shelf.row(0)
    different = [name for name, question in QUESTIONS.items() if question(sides.ours.store, op) != question(sides.theirs.store, op)]
    return [f"{name}, {config.name}: the stores give different answers" for name in different]


def found(sides: Sides) -> dict[str, float]:
    """How often the first answer to an item's own words is that item: an index may leave it out, or have it beyond the filter."""
    shelf = sides.ours.shelf
    asked = [(op, op.value["text"]) for op in map(shelf.row, range(min(50, shelf.rows))) if op.value is not None]

    def share(store: BaseStore) -> float:
        hits = [[item.key for item in store.search(op.namespace[:2], query=text, limit=1)] == [op.key] for op, text in asked]
        return round(sum(hits) / len(hits), 2)

    return {side.name: share(side.store) for side in sides}


def affordable(samples: Mapping[str, Sample], calls: int) -> int:
    """As many calls as the slowest subject makes in one turn's time."""
    slowest = max(sample(PROBE).elapsed / PROBE for sample in samples.values())
    return max(PROBE, min(calls, int(TURN / slowest)))


def measure(report: Report, dsn: str, config: Config, args: argparse.Namespace) -> list[str]:
    """Fill both sides in one way of use and compare what was asked for; says what the two disagreed about."""
    chosen = [operation for operation in OPERATIONS[config.name] if args.operation in (None, operation.name)]
    if not chosen:
        return []
    with opened(dsn, config, min(args.rows, EMBEDDED if config.embeds else args.rows)) as sides:
        note(report, f"filling, {config.name}", sides.fill())
        if config.embeds:
            note(report, "search_vector finds the item itself", found(sides))
        differed = disagreements(sides, config)
        for operation in chosen:
            samples = operation.subjects(sides)
            calls = operation.quick if args.quick else operation.calls if operation.concurrent else affordable(samples, operation.calls)
            runs = 2 if args.quick else RUNS
            compare(report, operation.name, samples, calls=calls, runs=runs, vectors=config.embeds, config=config.name)
        return differed + disagreements(sides, config)


def note(report: Report, name: str, fact: Mapping[str, object]) -> None:
    """Keep a fact and show it."""
    report.facts[name] = dict(fact)
    print(f"{name}: " + "  ".join(f"{key} {value}" for key, value in fact.items()), flush=True)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options(str(__doc__))
    parser.add_argument(
        "--rows", type=int, metavar="N", help="items in each store before anything is timed (default: 10,000; quick: 1,000)"
    )
    parser.add_argument("--only", choices=["plain", "text", "vectors", "parts"], help="only this part")
    parser.add_argument("--operation", choices=NAMES, help="only this operation; in `parts` there are get and put")
    parser.add_argument("--enforce", action="store_true", help="exit with 1 when a floor is lost, too")
    args = parser.parse_args(argv)
    args.rows = args.rows or (1_000 if args.quick else 10_000)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    failures: list[str] = []
    with server(args.dsn) as dsn, reporting("store", args, dsn) as report:
        for config in CONFIGS:
            if args.only in (None, config.name):
                failures += measure(report, dsn, config, args)
        if args.only in (None, "parts") and args.operation in (None, "get", "put"):
            take_apart(report, dsn, args)
        report.facts["floors"] = floors = judged(report.rows)
    print("\n".join([*verdicts(floors), *failures]))
    lost = args.enforce and not all(floor["held"] for floor in floors)
    return 1 if failures or lost else 0


if __name__ == "__main__":
    sys.exit(main())
