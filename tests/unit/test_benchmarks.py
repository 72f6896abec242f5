"""The pure parts of the benchmarks: how runs become rows, and how answers are judged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import SearchItem
from langgraph.store.memory import InMemoryStore

from dialogues import Heard, of, read
from frame import Report, Run, compare, gathered, interleaved, percentile, summed, table, threaded, timed


def answered(*seconds: float) -> Run:
    return Run(seconds, elapsed=sum(seconds))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.95, 10), (0.9, 9), (0.91, 10), (1.0, 10), (0.01, 1)])
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_a_row_is_the_median_run_with_its_spread() -> None:
    row = summed("b", "get", "NavinStore", [answered(0.001, 0.001), answered(0.004, 0.004), answered(0.002, 0.002)], vectors=True)
    assert (row.median_ms, row.low_ms, row.high_ms, row.p95_ms) == (2, 1, 4, 2)
    assert (row.per_s, row.runs, row.calls, row.vectors) == (500, 3, 2, True)


def test_a_call_may_do_many_things() -> None:
    assert summed("b", "batch", "NavinStore", [Run([0.5, 0.5], elapsed=1.0, done=200)]).per_s == 200


def test_subjects_take_turns_in_a_moving_order() -> None:
    turns: list[str] = []

    def sample(name: str, calls: int) -> Run:
        turns.append(name)
        return answered(*[0.001] * calls)

    taken = interleaved({"a": lambda n: sample("a", n), "b": lambda n: sample("b", n)}, calls=3, runs=3)
    assert "".join(turns) == "abbaab"
    assert [len(run.calls) for run in taken["a"]] == [3, 3, 3]


def test_a_comparison_measures_the_bare_round_trip_beside() -> None:
    report = Report("b", bare=timed(lambda _: None))
    compare(report, "get", {"NavinStore": timed(lambda _: None)}, calls=10, runs=2)
    assert [(row.subject, row.calls, row.runs) for row in report.rows] == [("NavinStore", 10, 2), ("select 1", 10, 2)]


def test_calls_are_numbered_and_clocked() -> None:
    numbers: list[int] = []
    run = timed(numbers.append)(4)
    assert numbers == [0, 1, 2, 3]
    assert len(run.calls) == 4
    assert 0 < sum(run.calls) <= run.elapsed


def test_the_json_has_the_machine_and_the_rows() -> None:
    report = Report("b", machine={"cores": 2})
    report.add("get", "NavinStore", [answered(0.001)])
    document = json.loads(report.as_json())
    assert document["machine"] == {"cores": 2}
    assert {"benchmark", "operation", "vectors", "subject", "median_ms", "p95_ms", "per_s"} <= document["rows"][0].keys()


def test_the_table_compares_with_the_first_subject() -> None:
    rows = [summed("b", "get", "NavinStore", [answered(0.002)]), summed("b", "get", "PostgresStore", [answered(0.005)])]
    lines = table(rows).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[-1] == "1.00"
    assert lines[2].split()[-1] == "2.50"


def test_a_failing_job_is_not_swallowed() -> None:
    def fails() -> None:
        raise LookupError("gone")

    async def afails() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        threaded([fails], workers=2)
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(gathered([[afails]]))
    assert caught.group_contains(LookupError)


def talk(*said: tuple[str, str]) -> dict[str, Any]:
    return {
        "session_1_date_time": "1 May",
        "session_1": [{"dia_id": key, "speaker": "Ann", "text": text} for key, text in said],
        "session_10": [{"dia_id": "D10:1", "speaker": "Bo", "text": "late", "blip_caption": "a cat"}],
        "session_2": [],
        "speaker_a": "Ann",
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two small conversations in LoCoMo's form."""
    asked = [
        {"question": "What?", "evidence": ["D1:1; D1:2", "D9:9"]},
        {"question": "Unresolvable?", "evidence": ["D7:7"]},
        {"question": "None?"},
    ]
    path = tmp_path / "locomo10.json"
    path.write_text(
        json.dumps([{"conversation": talk(("D1:1", "tea"), ("D1:2", "rain")), "qa": asked}, {"conversation": talk(), "qa": []}])
    )
    return path


def test_reads_turns_in_order_and_resolvable_questions(source: Path) -> None:
    first, second = read(source, 10)
    assert [first.namespace, second.namespace] == [("user", "locomo-0", "turns"), ("user", "locomo-1", "turns")]
    assert list(first.turns) == ["D1:1", "D1:2", "D10:1"]
    assert first.turns["D1:1"]["text"] == "[1 May] Ann: tea"
    assert first.turns["D10:1"]["text"] == "[] Bo: late [image: a cat]"
    assert [(question.text, question.evidence) for question in first.questions] == [("What?", frozenset({"D1:1", "D1:2"}))]
    assert len(read(source, 1)) == 1


def test_absent_data_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--data FILE"):
        read(tmp_path / "absent.json", 10)


def found(namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> SearchItem:
    return SearchItem(namespace, key, value, created_at=None, updated_at=None)  # type: ignore[arg-type]


def test_anothers_turn_is_foreign_by_place_or_by_content(source: Path) -> None:
    first, second = read(source, 2)
    value = first.turns["D10:1"]
    assert of(first, found(first.namespace, "D10:1", value))
    assert not of(first, found(second.namespace, "D10:1", value))
    assert not of(first, found(first.namespace, "D10:1", value | {"text": "other"}))
    assert not of(first, found(first.namespace, "D9:1", value))
    heard = Heard([(first, first.questions[0], [found(second.namespace, "D10:1", value), found(first.namespace, "D10:1", value)])])
    assert heard.foreign() == 1


def test_quality_counts_the_evidence(source: Path) -> None:
    dialogue = read(source, 1)[0]
    question = dialogue.questions[0]
    items = {key: found(dialogue.namespace, key, value) for key, value in dialogue.turns.items()}
    filler = [items["D10:1"]] * 5
    assert Heard([(dialogue, question, [items["D1:2"]])]).quality() == {"recall_at_10": 50.0, "hit_at_5": 100.0}
    late = Heard([(dialogue, question, [*filler, items["D1:1"], items["D1:2"]])])
    assert late.quality() == {"recall_at_10": 100.0, "hit_at_5": 0.0}


async def test_questions_are_asked_in_the_users_namespace(source: Path) -> None:
    store = InMemoryStore()
    dialogues = read(source, 2)
    for dialogue in dialogues:
        store.batch(dialogue.puts())
    heard = Heard()
    heard.ask(store, dialogues[0], dialogues[0].questions[0])
    await heard.aask(store, dialogues[0], dialogues[0].questions[0])
    assert [len(items) for _, _, items in heard.answers] == [3, 3]
    assert heard.foreign() == 0
