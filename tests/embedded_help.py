"""What the tests of the embedded server ask of processes, files and other programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from langgraph_navin.engines.builtin import embedded, embedded_binaries, embedded_home

REPOSITORY = Path(embedded.__file__).parents[3]
ROOT = os.geteuid() == 0
NOBODY = 65534
# Imported as the user who may read the environment, then run as a user who may not.
PRELUDE = f"""
import fcntl, multiprocessing, os, pathlib, psutil, pwd, shutil, signal, subprocess, sys, time
import psycopg
from langgraph_navin.engines.builtin import embedded_binaries, embedded_home
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.errors import EngineUnavailable
embedded_binaries.SHELTER, embedded_home.SOCKETS, data_dir = map(pathlib.Path, sys.argv[1:])
def demote():
    programs = embedded_binaries.Binaries.find(None, embedded_binaries.Account({NOBODY}, {NOBODY}) if os.geteuid() == 0 else None).root
    if os.geteuid() == 0:
        os.setgroups([]); os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    return programs
"""


def ask(dsn: str, question: str = "select word from kept") -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row and row[0]


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "data" / "postmaster.pid").read_text().split()[0])


def processes(data: Path) -> list[int]:
    """Every process whose working directory is the data: the postmaster and its children."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(data):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited a minute in vain"
        time.sleep(0.02)


def end(pid: int) -> None:
    """A server without its files ends by itself within a minute: no need to wait."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)


def socket_of(dsn: str) -> Path:
    return Path(dsn.split()[0].removeprefix("host="))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}


def command(body: str, data_dir: Path) -> list[str]:
    return [sys.executable, "-c", PRELUDE + body, str(embedded_binaries.SHELTER), str(embedded_home.SOCKETS), str(data_dir)]


def script(body: str, data_dir: Path) -> str:
    """What a program prints, in a process of its own."""
    done = subprocess.run(command(body, data_dir), env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def another(body: str, data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed one line and waits until its input ends."""
    with subprocess.Popen(
        command(body + "\nsys.stdin.read()", data_dir), env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


HOLD = "server = EmbeddedServer(data_dir)\nprint(server.start(), flush=True)"


FORK = """
server = EmbeddedServer(data_dir)
dsn = server.start()
said, says = os.pipe()
"""
