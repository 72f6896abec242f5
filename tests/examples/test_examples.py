"""Every example runs as a stranger would run it, and prints what its docstring promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a server under a user of its own can reach; pytest's own folders are closed to it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


def run(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLES / script, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def promised(script: str) -> list[str]:
    """The indented lines of a script's docstring."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / script).read_text())) or ""
    return [line.strip() for line in docstring.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_readme_names_every_script_and_each_says_what_it_does(script: Path) -> None:
    assert script.name in (EXAMPLES / "README.md").read_text()
    assert ast.get_docstring(ast.parse(script.read_text()))


def test_quickstart_prints_its_docstring_however_often_it_runs(folder: Path) -> None:
    for _ in range(2):
        done = run("01_quickstart.py", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == promised("01_quickstart.py")


ONE_STYLE = r"""style {style}, thread ({style}-\w+)
  dana prefers cautious advice: remembered in thread profile-dana
  worker (\d+) drafted "For a cautious investor: [^"]+" and waits for approval
  killed worker \2 \(SIGKILL\)
(?:  process \d+: approved by (erin|frank) at [\d-]+ [\d:]+ UTC
  process \d+: refused (?:erin|frank): thread \1 is already approved by \3 at [\d-]+ [\d:]+ UTC
|  process \d+: refused (?:erin|frank): thread \1 is already approved by (erin|frank) at [\d-]+ [\d:]+ UTC
  process \d+: approved by \4 at [\d-]+ [\d:]+ UTC
)  published: 1 in the outbox, 1 in dana's archive
"""


def test_the_demo_plays_both_styles_and_leaves_nothing_behind(folder: Path) -> None:
    done = run("02_resume_after_approval.py", cwd=folder)

    assert done.returncode == 0, done.stderr
    where, shown = done.stdout.split("\n", 1)
    first, second = shown.split("style before", 1)
    assert re.fullmatch(ONE_STYLE.format(style="interrupt"), first), first
    assert re.fullmatch(ONE_STYLE.format(style="before"), "style before" + second), second
    temporary = re.fullmatch("database and outbox are in (.+), which is removed at the end", where)
    assert temporary
    assert not Path(temporary[1]).exists()
    assert not list(folder.iterdir())


def test_the_roles_can_be_played_by_hand(folder: Path) -> None:
    asked = ["--style", "before", "--data-dir", str(folder / "kept"), "--thread", "mine"]

    early = run("02_resume_after_approval.py", "approve", *asked, cwd=folder)
    assert (early.returncode, early.stdout.partition(": ")[2]) == (1, "refused erin: thread mine has not started\n")

    # Standard input is empty here, so the worker ends as soon as it waits.
    worker = subprocess.run(
        [sys.executable, EXAMPLES / "02_resume_after_approval.py", "worker", *asked],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'drafted "For a balanced investor:' in worker.stdout

    rejected = run("02_resume_after_approval.py", "reject", *asked, "--by", "grace", cwd=folder)
    assert rejected.returncode == 0, rejected.stderr
    assert re.search(r"rejected by grace at .* UTC, nothing is published$", rejected.stdout.strip())
    assert not list((folder / "kept" / "outbox").glob("*.json"))

    late = run("02_resume_after_approval.py", "approve", *asked, cwd=folder)
    assert late.returncode == 1
    assert "is already rejected by grace" in late.stdout


def test_a_role_without_its_thread_is_explained(folder: Path) -> None:
    done = run("02_resume_after_approval.py", "approve", cwd=folder)
    assert done.returncode == 2
    assert "approve needs --data-dir, --style and --thread" in done.stderr
