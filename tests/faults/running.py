"""A server that tests may stop, crash and start again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from embedded_help import postmaster
from faults.crew import PATIENCE
from langgraph_navin.engines.builtin.embedded import EmbeddedServer


@dataclass
class Running:
    """A server, its DSN and its data directory."""

    embedded: EmbeddedServer
    dsn: str
    place: Path

    def restart(self, number: signal.Signals) -> None:
        """What `pg_ctl restart` does, in the mode that this signal stands for."""
        process = psutil.Process(postmaster(self.place))
        process.send_signal(number)
        # It is nobody's child here, and whoever inherits it may let it lie for a while.
        until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the server doesn't stop")
        self.embedded.start()

    def crash(self) -> None:
        """Kill one backend: the server ends all others, recovers and goes on."""
        with psycopg.connect(self.dsn, autocommit=True) as witness, psycopg.connect(self.dsn) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            # The server has noticed once it has ended somebody else.
            with suppress(psycopg.OperationalError):
                while True:
                    witness.execute("select 1")
        until(self.answers, "the server doesn't recover")

    def answers(self) -> bool:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError:
            return False
        return True


def until(condition: Callable[[], object], otherwise: str) -> None:
    """Wait until the condition holds; fail when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.005)
