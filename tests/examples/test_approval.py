"""The approval of example 02: decided once, published once, whoever dies and whoever comes at the same time."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from langgraph_navin import Navin

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """A module of the examples, under the name that it has in their own processes."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load("research_graph")
approval = load("02_resume_after_approval")


@pytest.fixture(scope="session")
def data_dir() -> Iterator[Path]:
    """A folder that a server under a user of its own can reach; pytest's own folders are closed to it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="session")
def navin(data_dir: Path) -> Iterator[Navin]:
    with Navin.open(data_dir=data_dir / "navin") as navin:
        yield navin


@pytest.fixture(params=["interrupt", "before"])
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Case:
    """One thread of one user, on a memory that every test shares, with an outbox of its own."""

    def __init__(self, navin: Navin, data_dir: Path, style: str) -> None:
        self.navin, self.data_dir, self.style = navin, data_dir, style
        self.thread, self.user = f"thread-{uuid.uuid4().hex}", f"user-{uuid.uuid4().hex}"
        self.outbox = example.Outbox(data_dir / f"outbox-{self.thread}")
        self.graph = self.build()
        self.processes: list[subprocess.Popen[str]] = []

    def build(self, **parts: Any) -> Any:
        return example.build(self.navin, parts.pop("outbox", self.outbox), self.style, **parts)

    def research(self) -> Any:
        return approval.research(self.graph, self.thread, self.user)

    def decide(self, by: str = "erin", *, approved: bool = True, graph: Any = None) -> Any:
        return approval.decide(graph or self.graph, self.outbox, self.thread, by=by, approved=approved)

    def state(self) -> Any:
        return self.graph.get_state(example.on_thread(self.thread))

    def archived(self) -> list[dict[str, Any]]:
        return [item.value for item in self.navin.store.search(example.reports(self.user), limit=100)]

    def published_once(self) -> Any:
        """The one report, after a look that outbox, archive and state agree on it."""
        (report,) = self.outbox.sent()
        assert self.archived() == [report.model_dump(mode="json")]
        assert self.state().next == ()
        assert self.state().values["report"] == report
        assert self.state().values["approval"] == report.approval
        return report

    def process(self, script: str) -> subprocess.Popen[str]:
        """Another process with the same graph; only types that the graph names are let into its state."""
        arguments = [str(self.data_dir / "navin"), str(self.outbox.folder), self.style, self.thread, self.user]
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path]), "LANGGRAPH_STRICT_MSGPACK": "true"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def case(navin: Navin, data_dir: Path, style: str) -> Iterator[Case]:
    case = Case(navin, data_dir, style)
    yield case
    case.end()


PRELUDE = """
import importlib, json, sys
from pathlib import Path
from langgraph_navin import Navin
import research_graph as example
approval = importlib.import_module("02_resume_after_approval")
data_dir, folder, style, thread, user = sys.argv[1:]
outbox = example.Outbox(Path(folder))
navin = Navin.open(data_dir=data_dir)

def tell(word):
    "Say a word and hold on until the parent answers."
    print(word, flush=True)
    sys.stdin.readline()
"""


def heard(process: subprocess.Popen[str], word: str) -> None:
    """Wait until a process has said a word."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -9


# --- the main job ---


def test_an_approved_report_is_published_once_for_the_preference_of_an_earlier_thread(case: Case) -> None:
    example.tell_preference(case.navin, case.user, "cautious")

    assert case.research().next == ("publish",)
    assert case.outbox.sent() == case.archived() == []
    saved = case.decide("erin")

    report = case.published_once()
    assert saved["report"] == report
    assert report.text.startswith("For a cautious investor: keep four fifths in short government bonds.")
    assert report.approval.approved
    assert report.approval.by == "erin"
    assert report.approval.at.utcoffset() is not None


def test_a_user_without_a_preference_gets_the_default(case: Case) -> None:
    example.tell_preference(case.navin, f"not-{case.user}", "bold")
    case.research()
    case.decide()
    assert case.published_once().text.startswith("For a balanced investor: split evenly")


def test_a_rejection_publishes_nothing_and_is_final(case: Case) -> None:
    case.research()
    saved = case.decide("grace", approved=False)

    assert (saved["approval"].approved, saved["approval"].by) == (False, "grace")
    assert "report" not in saved
    assert case.outbox.sent() == case.archived() == []
    with pytest.raises(approval.ApprovalRefused, match="is already rejected by grace at "):
        case.decide("erin")
    assert case.outbox.sent() == case.archived() == []


# --- refusals ---


def test_a_thread_that_has_not_started_cannot_be_decided(case: Case) -> None:
    with pytest.raises(approval.ApprovalRefused, match="has not started"):
        case.decide()
    assert case.state().values == {}


def test_a_thread_that_stands_elsewhere_cannot_be_decided(case: Case) -> None:
    def unreachable(topic: str) -> NoReturn:
        raise ConnectionError("the library is closed")

    with pytest.raises(ConnectionError, match="closed"):
        approval.research(case.build(search=unreachable), case.thread, case.user)
    with pytest.raises(approval.ApprovalRefused, match="stands before gather; let a worker go on"):
        case.decide()
    assert "approval" not in case.state().values


@pytest.mark.parametrize("approved", [True, False])
def test_a_second_decision_is_refused_and_changes_nothing(case: Case, approved: bool) -> None:
    case.research()
    case.decide("erin")
    before = case.published_once()
    with pytest.raises(approval.ApprovalRefused, match="is already approved by erin at "):
        case.decide("frank", approved=approved)
    assert case.published_once() == before


# --- at the same time ---


def test_of_two_processes_that_approve_at_once_one_publishes(case: Case) -> None:
    case.research()
    script = """
graph = example.build(navin, outbox, style)
tell("ready")
try:
    saved = approval.decide(graph, outbox, thread, by=NAME, approved=True)
    kinds = [type(saved["findings"][0]).__name__, type(saved["approval"]).__name__, type(saved["report"]).__name__]
    print(json.dumps(["approved", NAME, kinds]))
except approval.ApprovalRefused as refusal:
    print(json.dumps(["refused", NAME, str(refusal)]))
navin.close()
"""
    processes = {name: case.process(script.replace("NAME", repr(name))) for name in ("erin", "frank")}
    for process in processes.values():
        heard(process, "ready")
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = sorted(json.loads(process.communicate()[0]) for process in processes.values())

    (won, winner, kinds), (lost, loser, why) = answers
    assert (won, lost, {winner, loser}) == ("approved", "refused", {"erin", "frank"})
    assert kinds == ["Finding", "Approval", "Report"]
    assert f"is already approved by {winner} at " in why
    assert case.published_once().approval.by == winner


def test_decisions_about_one_thread_take_turns(case: Case) -> None:
    sending, go_on = threading.Event(), threading.Event()

    class Slow(example.Outbox):  # type: ignore[misc, name-defined]
        def deliver(self, report: Any) -> Any:
            sending.set()
            assert go_on.wait(timeout=60)
            return super().deliver(report)

    case.research()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(case.decide, "erin", graph=case.build(outbox=Slow(case.outbox.folder)))
        assert sending.wait(timeout=60)
        (lock,) = case.outbox.folder.glob(".*.lock")
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        second = pool.submit(case.decide, "frank", approved=False)
        go_on.set()
        assert first.result()["approval"].by == "erin"
        with pytest.raises(approval.ApprovalRefused, match="is already approved by erin at "):
            second.result()
    assert case.published_once().approval.by == "erin"


def test_even_without_the_lock_two_approvals_send_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    both_saw_it_wait = threading.Barrier(2)
    look = approval.refuse_unless_waiting

    def look_together(graph: Any, thread_id: str) -> None:
        look(graph, thread_id)
        both_saw_it_wait.wait(timeout=60)

    def outcome(name: str) -> str | None:
        try:
            return str(case.decide(name)["approval"].by)
        except approval.ApprovalRefused:
            return None

    case.research()
    monkeypatch.setattr(approval, "taking_turns", lambda path: nullcontext())
    monkeypatch.setattr(approval, "refuse_unless_waiting", look_together)
    with ThreadPoolExecutor(2) as pool:
        outcomes = set(pool.map(outcome, ["erin", "frank"]))

    (report,) = case.outbox.sent()
    assert case.archived() == [report.model_dump(mode="json")]
    assert outcomes == {report.approval.by, None}


# --- processes that die ---


def test_a_worker_killed_while_it_waits_is_not_needed_any_more(case: Case) -> None:
    worker = case.process("""
approval.research(example.build(navin, outbox, style), thread, user)
tell("waiting")
""")
    heard(worker, "waiting")
    killed(worker)
    case.decide("erin")
    assert case.published_once().approval.by == "erin"


def test_a_worker_killed_while_it_gathers_is_followed_by_one_that_completes(case: Case) -> None:
    worker = case.process("""
found = []
def search(topic):
    if found:
        tell("gathering")
    found.append(topic)
    return example.search_library(topic)

approval.research(example.build(navin, outbox, style, search=search), thread, user)
""")
    heard(worker, "gathering")
    killed(worker)
    planned = case.state()
    assert planned.next == ("gather",)

    class NoSecondPlan(example.ScriptedAnalyst):  # type: ignore[misc, name-defined]
        def _generate(self, messages: list[Any], *args: Any, **options: Any) -> Any:
            assert not messages[-1].text.startswith("Plan")
            return super()._generate(messages, *args, **options)

    case.graph = case.build(model=NoSecondPlan())
    assert case.research().next == ("publish",)
    assert [finding.topic for finding in case.state().values["findings"]] == planned.values["plan"]
    case.decide("erin")
    case.published_once()


@pytest.mark.parametrize("approved", [True, False])
def test_an_approver_killed_after_sending_has_decided(case: Case, approved: bool) -> None:
    case.research()
    approver = case.process("""
class Slow(example.Outbox):
    def deliver(self, report):
        report = super().deliver(report)
        tell("sent")
        return report

approval.decide(example.build(navin, Slow(Path(folder)), style), outbox, thread, by="erin", approved=True)
""")
    heard(approver, "sent")
    killed(approver)
    assert case.archived() == []
    assert case.state().next == ("publish",)

    with pytest.raises(approval.ApprovalRefused, match="is already approved by erin at "):
        case.decide("frank", approved=approved)
    assert case.published_once().approval.by == "erin"


def test_an_approver_that_fails_before_sending_blocks_nobody(case: Case) -> None:
    class Unreachable(example.Outbox):  # type: ignore[misc, name-defined]
        def deliver(self, report: Any) -> NoReturn:
            raise ConnectionError("the outbox is down")

    case.research()
    with pytest.raises(ConnectionError, match="down"):
        case.decide("erin", graph=case.build(outbox=Unreachable(case.outbox.folder)))
    assert case.outbox.sent() == case.archived() == []

    # The decision was saved before the failure, so it is the one that is carried out.
    with pytest.raises(approval.ApprovalRefused, match="is already approved by erin at "):
        case.decide("frank")
    assert case.published_once().approval.by == "erin"


# --- a graph that is run without asking ---


def test_a_worker_that_comes_back_to_a_waiting_thread_publishes_nothing(case: Case) -> None:
    first = case.research()
    assert case.research().tasks == first.tasks
    assert case.outbox.sent() == case.archived() == []


def test_a_run_past_the_breakpoint_still_asks(navin: Navin, data_dir: Path) -> None:
    case = Case(navin, data_dir, "before")
    case.research()
    case.graph.invoke(None, example.on_thread(case.thread), durability="sync")
    assert case.state().next == ("publish",)
    assert case.outbox.sent() == case.archived() == []
    case.decide("erin")
    case.published_once()


# --- parts ---


def test_the_outbox_takes_one_report_of_an_id(tmp_path: Path) -> None:
    outbox = example.Outbox(tmp_path / "outbox")
    by = [example.Approval(approved=True, by=name, at="2031-01-01T00:00:00Z") for name in ("erin", "frank")]
    first, second = (example.Report(id="r", text=one.by, approval=one) for one in by)
    assert outbox.find("r") is None
    assert outbox.deliver(first) == first
    assert outbox.deliver(second) == first
    assert outbox.sent() == [outbox.find("r")] == [first]
    assert [path.name for path in outbox.folder.iterdir()] == ["r.json"]


def test_the_model_is_the_one_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    chat_models = ModuleType("langchain.chat_models")
    chat_models.init_chat_model = asked.append  # type: ignore[attr-defined]
    monkeypatch.delenv("NAVIN_MODEL", raising=False)
    assert isinstance(example.chat_model(), example.ScriptedAnalyst)

    monkeypatch.setenv("NAVIN_MODEL", "openai:some-model")
    monkeypatch.setitem(sys.modules, "langchain.chat_models", chat_models)
    example.chat_model()
    assert asked == ["openai:some-model"]

    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    with pytest.raises(RuntimeError, match="NAVIN_MODEL=openai:some-model needs `pip install langchain`"):
        example.chat_model()
