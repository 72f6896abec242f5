"""A report waits for approval, its process is killed, another process approves: it is published once.

For each style of waiting (`interrupt()` inside the node, `interrupt_before` ahead of it) the script

- lets dana state a risk preference in one thread;
- starts a worker process that drafts a report in another thread, and kills it (SIGKILL) while it waits;
- lets two processes approve at the same time: one publishes, the other is refused and told why;
- shows the one report in the outbox and in dana's archive, written for her preference.

    python examples/02_resume_after_approval.py [--style interrupt|before] [--data-dir DIR]

Without `--data-dir` everything happens in a temporary folder that is removed at the end. The roles can be
played by hand too; `--help` lists them. Needs POSIX (SIGKILL, file locks). Offline; a real chat model writes
with `NAVIN_MODEL=provider:name`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast, get_args

from langgraph.types import Command, StateSnapshot

from langgraph_navin import Navin
from research_graph import Approval, Graph, Outbox, State, Style, build, on_thread, report_id, reports, tell_preference

QUESTION = "Where should my savings go this year?"


class ApprovalRefused(RuntimeError):
    """There is nothing to decide here: nothing waits, or somebody has decided."""


# --- the worker ---


def research(graph: Graph, thread_id: str, user_id: str, question: str = QUESTION) -> StateSnapshot:
    """Run a thread until it waits for approval, from its beginning or from where a killed worker left it."""
    config = on_thread(thread_id)
    saved = graph.get_state(config)
    if not saved.values:
        graph.invoke({"user_id": user_id, "question": question}, config, durability="sync")
    elif saved.next and not waits(saved, graph):
        graph.invoke(None, config, durability="sync")
    return graph.get_state(config)


def waits(saved: StateSnapshot, graph: Graph) -> bool:
    """Whether the saved state asks for a decision: at the breakpoint, or inside `publish`."""
    asked = any(task.interrupts for task in saved.tasks)
    return saved.next == ("publish",) and (asked or "publish" in graph.interrupt_before_nodes)


# --- the approval ---


def decide(graph: Graph, outbox: Outbox, thread_id: str, *, by: str, approved: bool) -> State:
    """Approve or reject what waits, and return the state that results.

    Decisions about one thread take turns, so the second one reads what the first one saved. Approvers on several
    hosts need a lock that the hosts share. Without one a report still goes out once, but an approval and a
    rejection of the same moment may both be told yes.

    Raises:
        ApprovalRefused: nothing waits for a decision, or another decision came first.
    """
    with taking_turns(outbox.folder / f".{report_id(thread_id)}.lock"):
        refuse_unless_waiting(graph, thread_id)
        approval = Approval(approved=approved, by=by, at=datetime.now(UTC))
        result = resume(graph, thread_id, approval)
    if result["approval"] != approval:
        raise ApprovalRefused(f"thread {thread_id} is already {result['approval']}")
    return result


def resume(graph: Graph, thread_id: str, approval: Approval) -> State:
    """Give the decision to the graph in the way it waits for it, and let it finish."""
    config = on_thread(thread_id)
    if "publish" not in graph.interrupt_before_nodes:
        return cast(State, graph.invoke(Command(resume=approval.model_dump(mode="json")), config, durability="sync"))
    # An approver that died after this update left its decision in the state; that one is carried out.
    if "approval" not in graph.get_state(config).values:
        graph.update_state(config, {"approval": approval}, as_node="draft")
    return cast(State, graph.invoke(None, config, durability="sync"))


def refuse_unless_waiting(graph: Graph, thread_id: str) -> None:
    saved = graph.get_state(on_thread(thread_id))
    if waits(saved, graph):
        return
    if not saved.values:
        raise ApprovalRefused(f"thread {thread_id} has not started")
    if not saved.next:
        raise ApprovalRefused(f"thread {thread_id} is already {saved.values['approval']}")
    raise ApprovalRefused(f"thread {thread_id} is not waiting for approval: it stands before {', '.join(saved.next)}; let a worker go on")


@contextmanager
def taking_turns(path: Path) -> Iterator[None]:
    """Hold a file's lock. The kernel lets it go when its holder dies, so a killed approver blocks nobody."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- the roles, one process each ---


def work(navin: Navin, args: argparse.Namespace) -> None:
    """Draft, say so, and hold on until standard input closes (or somebody kills this process)."""
    saved = research(build(navin, args.outbox, args.style), args.thread, args.user)
    if not saved.next:
        print(f"worker {os.getpid()}: thread {args.thread} is done, {saved.values['approval']}")
        return
    print(f'worker {os.getpid()} drafted "{saved.values["draft"]}" and waits for approval', flush=True)
    sys.stdin.read()


def judge(navin: Navin, args: argparse.Namespace) -> None:
    """Approve or reject; a refusal is one line and exit status 1."""
    try:
        saved = decide(build(navin, args.outbox, args.style), args.outbox, args.thread, by=args.by, approved=args.role == "approve")
    except ApprovalRefused as refusal:
        print(f"process {os.getpid()}: refused {args.by}: {refusal}")
        sys.exit(1)
    print(f"process {os.getpid()}: {saved['approval']}" + ("" if "report" in saved else ", nothing is published"))


def demo(navin: Navin, args: argparse.Namespace) -> None:
    """Play every role, for one style or both."""
    for style in [args.style] if args.style else get_args(Style):
        thread_id = f"{style}-{uuid.uuid4().hex[:8]}"
        print(f"style {style}, thread {thread_id}")
        tell_preference(navin, args.user, "cautious")
        print(f"  {args.user} prefers cautious advice: remembered in thread profile-{args.user}")
        told_and_killed(spawn(args, style, thread_id, "worker"))
        approvers = [spawn(args, style, thread_id, "approve", "--by", name) for name in ("erin", "frank")]
        for approver in approvers:
            print(f"  {answer(approver)}")
        show(navin, args, report_id(thread_id))


def told_and_killed(worker: subprocess.Popen[str]) -> None:
    """Read the worker's one line, which it prints when it waits, and kill it."""
    assert worker.stdout is not None
    line = worker.stdout.readline().strip()
    worker.kill()
    worker.communicate()
    if not line:
        raise RuntimeError(f"worker {worker.pid} ended before it waited for approval")
    print(f"  {line}\n  killed worker {worker.pid} (SIGKILL)")


def answer(approver: subprocess.Popen[str]) -> str:
    """The approver's one line. An approver that failed said nothing here; its traceback is on standard error."""
    line = approver.communicate()[0].strip()
    if not line:
        raise RuntimeError(f"approver {approver.pid} failed")
    return line


def show(navin: Navin, args: argparse.Namespace, identity: str) -> None:
    sent = [report for report in args.outbox.sent() if report.id == identity]
    archived = [item for item in navin.store.search(reports(args.user), limit=1000) if item.key == identity]
    print(f"  published: {len(sent)} in the outbox, {len(archived)} in {args.user}'s archive")


def spawn(args: argparse.Namespace, style: Style, thread_id: str, *role: str) -> subprocess.Popen[str]:
    """Start this script again in another role, with only known types let into the saved state."""
    where = ["--data-dir", str(args.data_dir), "--style", style, "--thread", thread_id, "--user", args.user]
    command = [sys.executable, __file__, *role, *where]
    environment = os.environ | {"LANGGRAPH_STRICT_MSGPACK": "true"}
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("role", nargs="?", default="demo", choices=["demo", "worker", "approve", "reject"])
    parser.add_argument("--style", choices=get_args(Style), help="how the graph waits (demo: both)")
    parser.add_argument("--data-dir", type=Path, help="where database and outbox are kept (demo: a temporary folder)")
    parser.add_argument("--thread", help="which thread to work on or decide about")
    parser.add_argument("--by", default="erin", help="who decides")
    parser.add_argument("--user", default="dana", help="whose research it is")
    args = parser.parse_args(argv)
    if args.role != "demo" and not (args.thread and args.style and args.data_dir):
        parser.error(f"{args.role} needs --data-dir, --style and --thread")
    return args


@contextmanager
def kept_or_temporary(data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield data_dir
        return
    with tempfile.TemporaryDirectory(prefix="navin-demo-") as temporary:
        # For root the embedded server runs under a user of its own, which must reach its files in here.
        Path(temporary).chmod(0o711)
        print(f"database and outbox are in {temporary}, which is removed at the end", flush=True)
        yield Path(temporary)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    play = {"demo": demo, "worker": work, "approve": judge, "reject": judge}[args.role]
    with kept_or_temporary(args.data_dir) as args.data_dir, Navin.open(data_dir=args.data_dir / "navin") as navin:
        args.outbox = Outbox(args.data_dir / "outbox")
        play(navin, args)


if __name__ == "__main__":
    main()
