"""Data directories to start servers on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from langgraph_navin.engines.builtin import embedded_binaries, embedded_home
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from servers import ground


@pytest.fixture(scope="module", autouse=True)
def shelter() -> Iterator[Path]:
    """Nothing of a test outlives it: not in /var/lib, not in /tmp."""
    with ground() as place, pytest.MonkeyPatch.context() as patch:
        sockets = place / "s"
        sockets.mkdir()
        sockets.chmod(0o1777)
        patch.setattr(embedded_home, "SOCKETS", sockets)
        patch.setattr(embedded_binaries, "SHELTER", place / "shelter")
        yield place / "shelter"


@pytest.fixture
def place() -> Iterator[Path]:
    with ground() as made:
        yield made


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """The data of a stopped server that holds one row."""
    with ground() as made:
        first = EmbeddedServer(made / "navin")
        with psycopg.connect(first.start(), autocommit=True) as connection:
            connection.execute("create table kept (word text)")
            connection.execute("insert into kept values ('here')")
        first.stop()
        yield made / "navin" / "data"


@pytest.fixture
def data_dir(place: Path, template: Path) -> Path:
    made = place / "navin"
    made.mkdir()
    subprocess.run(["cp", "-a", template, made / "data"], check=True)
    return made


@pytest.fixture
def start(data_dir: Path) -> Iterator[Callable[[], EmbeddedServer]]:
    """Makes started servers, stopped at the end."""
    made: list[EmbeddedServer] = []

    def make() -> EmbeddedServer:
        made.append(EmbeddedServer(data_dir))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
