"""A process that writes until it is killed, and says through a pipe what it begins and what has returned."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

from faults.crew import Crew, Role
from faults.writes import What, Write, caller
from langgraph_navin import Navin
from store_subjects import indexed


class Voice:
    """Notes that reach another process: once sent, they outlive this one."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._turn = pipe, threading.Lock()

    def note(self, what: What, write: Write) -> None:
        with self._turn:
            self._pipe.send((what, write))


def write_until_killed(dsn: str, tenant: str, roles: Sequence[Role], vectors: bool, pipe: Connection) -> None:
    """Open a memory in this process and put a crew to work on it."""
    navin = Navin.unprepared(dsn=dsn, index=indexed("text") if vectors else None)
    with Crew(navin.store.bound(caller(tenant)), Voice(pipe), roles, tick=navin.maintenance.tick) as crew:
        while True:
            crew.turn()
