"""`benchmarks/store.py`: what it asks of both stores, how floors are judged, and that a quick run works."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calls import OPERATIONS
from frame import Report, Row, Run, summed
from parts import GET, PUT, costs
from servers import server
from shelves import BATCH, DIMS, Hashed, Shelf
from store import FLOORS, Floor, affordable, judged, main, verdicts


def row(operation: str, subject: str, ms: float, config: str = "plain") -> Row:
    return summed("store", operation, subject, [Run([ms / 1000], elapsed=ms / 1000)], config=config)


# --- floors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "held"), [(7.5, True), (7.6, False)])
def test_a_median_is_held_up_to_its_floor(ours: float, held: bool) -> None:
    rows = [row("get", "NavinStore", ours), row("get", "PostgresStore", 10), row("get", "select 1", 1)]
    (verdict,) = judged(rows, [Floor("plain", "get", "median_ms", 0.75)])
    assert (verdict["measured"], verdict["held"]) == (ours / 10, held)


@pytest.mark.parametrize(("ours", "held"), [(5.0, True), (5.1, False)])
def test_a_rate_is_held_from_its_floor_on(ours: float, held: bool) -> None:
    rows = [row("gather", "NavinStore", ours), row("gather", "AsyncPostgresStore", 10)]
    (verdict,) = judged(rows, [Floor("plain", "gather", "per_s", 2.0, "AsyncPostgresStore")])
    assert verdict["held"] is held


def test_what_was_not_measured_is_not_judged() -> None:
    rows = [row("get", "NavinStore", 1, config="text"), row("get", "PostgresStore", 1, config="text"), row("put", "NavinStore", 1)]
    assert judged(rows) == []


def test_a_lost_floor_is_shown_like_a_held_one() -> None:
    floors = [{"theirs": "PostgresStore", "figure": "median_ms", "limit": 1.3, "config": "plain"}]
    shown = "\n".join(
        verdicts([floors[0] | {"operation": o, "measured": m, "held": m <= 1.3} for o, m in (("put", 1.2), ("put_update", 1.4))])
    )
    assert [line.split()[-2:] for line in shown.splitlines()[1:]] == [["1.200", "held"], ["1.400", "LOST"]]


def test_every_floor_is_about_something_that_is_measured() -> None:
    measured = {(config, operation.name) for config, operations in OPERATIONS.items() for operation in operations}
    assert {(floor.config, floor.operation) for floor in FLOORS} <= measured


# --- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [Shelf.old, Shelf.new, Shelf.again, Shelf.old_batch, Shelf.new_batch, Shelf.again_batch, Shelf.question])
def test_two_stores_are_asked_the_same(ask: object) -> None:
    ours, theirs = Shelf(1_000), Shelf(1_000)
    assert callable(ask)
    asked = [ask(ours) for _ in range(5)]
    assert asked == [ask(theirs) for _ in range(5)]
    assert asked[0] != asked[1]


def test_new_items_are_new_and_old_ones_are_there() -> None:
    shelf = Shelf(1_000)
    there = {(op.namespace, op.key) for batch in shelf.filling(300) for op in batch}
    assert len(there) == 1_000
    old: list[Any] = [*shelf.old_batch(), *shelf.again_batch(), shelf.old(), shelf.again()]
    assert {(op.namespace, op.key) for op in old} <= there
    assert there.isdisjoint((op.namespace, op.key) for op in [*shelf.new_batch(), shelf.new()])


@pytest.mark.parametrize("ask", ["old_batch", "new_batch", "again_batch"])
def test_a_batch_is_about_different_items_of_one_user(ask: str) -> None:
    shelf = Shelf(1_000)
    for _ in range(shelf.users + 1):
        ops: list[Any] = getattr(shelf, ask)()
        assert len({(op.namespace, op.key) for op in ops}) == BATCH
        assert len({op.namespace[:2] for op in ops}) == 1


def test_a_value_is_what_a_note_is() -> None:
    value = Shelf(1_000).row(103).value
    assert value is not None
    assert 330 < len(json.dumps(value)) < 480
    assert value["cat"] == "c10"


def test_vectors_follow_from_the_text_alone() -> None:
    first, second = Hashed(), Hashed()
    tea, rain = first.embed_documents(["tea", "rain"])
    assert len(tea) == DIMS
    assert math.isclose(sum(x * x for x in tea), 1)
    assert second.embed_query("rain") == rain
    assert rain != tea


def test_slow_calls_are_made_less_often() -> None:
    def costing(seconds: float) -> object:
        return lambda calls: Run([seconds] * calls, elapsed=seconds * calls)

    samples = {"NavinStore": costing(0.001), "PostgresStore": costing(0.5)}
    assert affordable(samples, 100) == 8  # type: ignore[arg-type]
    assert affordable(samples, 5) == 5  # type: ignore[arg-type]


def test_a_part_costs_what_lies_between_two_steps() -> None:
    rows = [row("get", "select 1", 1), row("get", "select", 1.5), row("get", "+ function", 1.75)]
    assert costs(rows, {"select": "select 1", "+ function": "select"}) == {"select": 500, "+ function": 250}


# --- a quick run --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with server(18) as dsn:
        yield dsn


@pytest.mark.slow
@pytest.mark.parametrize("part", ["plain", "vectors"])
def test_a_quick_run_measures_both_at_everything(part: str, dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "store.json"
    assert main(["--quick", "--rows", "200", "--only", part, "--dsn", dsn, "--json", str(results)]) == 0
    document = json.loads(results.read_text())
    measured = {(row["operation"], row["subject"].removeprefix("Async")) for row in document["rows"] if row["config"] == part}
    names = {operation.name for operation in OPERATIONS[part]}
    assert measured == {(name, subject) for name in names for subject in ("NavinStore", "PostgresStore", "select 1")}
    assert document["facts"][f"filling, {part}"]["rows"] == 200
    judged_here = {(floor["config"], floor["operation"]) for floor in document["facts"]["floors"]}
    assert judged_here == {(floor.config, floor.operation) for floor in FLOORS if floor.config == part}
    assert "differ" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_quick_run_takes_a_get_and_a_put_apart(dsn: str, tmp_path: Path) -> None:
    results = tmp_path / "parts.json"
    assert main(["--quick", "--rows", "200", "--only", "parts", "--dsn", dsn, "--json", str(results)]) == 0
    facts = json.loads(results.read_text())["facts"]
    assert facts["parts of get, µs"].keys() == GET.keys()
    assert facts["parts of put, µs"].keys() == PUT.keys()


@pytest.mark.slow
def test_a_lost_floor_counts_only_where_it_is_asked_for(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(report: Report, *_: object) -> list[str]:
        report.rows += [row("get", "NavinStore", 2), row("get", "PostgresStore", 1)]
        return []

    monkeypatch.setattr("store.measure", lost)
    arguments = ["--quick", "--only", "plain", "--dsn", dsn]
    assert main(arguments) == 0
    assert main([*arguments, "--enforce"]) == 1


@pytest.mark.slow
def test_different_answers_count_always(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("store.measure", lambda *_: ["get, plain: the stores give different answers"])
    assert main(["--quick", "--only", "plain", "--dsn", dsn]) == 1
    assert "get, plain" in capsys.readouterr().out
