"""Work that nobody waits for: expired memories are swept, the text index is compacted, vectors settle in their index.

Run from a thread that `Navin.open()` starts, from `navin maintain`, or by hand. Two at once do no harm: each takes the
rows that the other doesn't hold.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import Protocol

from .abc import Session
from .drive import run
from .effects import Steps
from .errors import NavinError

logger = logging.getLogger("langgraph_navin")

#: Seconds between two rounds.
INTERVAL = 5.0
#: Every so many rounds, what little has died is dropped from the text index too: once a minute.
THOROUGH_EVERY = 12
#: What to do about large partitions without an index.
UNINDEXED = "run `navin maintain` with the role that owns the schema, or pass it as admin_dsn; pgvector must be 0.8 or newer"


class Upkeep(Protocol):
    """An engine's own maintenance plans."""

    def upkeep(self, *, thorough: bool = False) -> Steps[dict[str, int]]: ...
    def sweep(self, limit: int | None = None) -> Steps[int]: ...
    def session(self) -> AbstractContextManager[Session]: ...


class Maintenance:
    """Rounds of upkeep in a daemon thread."""

    def __init__(self, engine: Upkeep, interval: float = INTERVAL) -> None:
        self._engine = engine
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = False

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, interval: float | None = None) -> None:
        """Start the thread; a second call changes nothing but the seconds between two rounds."""
        if interval is not None:
            self._interval = interval
        if not self.running:
            self._stop.clear()
            self._thread = threading.Thread(target=self._rounds, name="navin-maintenance", daemon=True)
            self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread; whether it ended within `timeout` seconds."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self.running

    def tick(self, *, thorough: bool = True) -> dict[str, int]:
        """One round, now: how many items were swept, parts compacted and vectors settled; see `Engine.upkeep`."""
        with self._engine.session() as session:
            done = run(self._engine.upkeep(thorough=thorough), session)
        if done.get("unindexed") and not self._told:
            self._told = True
            logger.info("%s large partitions of vectors have no index, their searches compare everything: %s", done["unindexed"], UNINDEXED)
        return done

    def sweep(self) -> int:
        """Delete every expired item; the number of them."""
        with self._engine.session() as session:
            return run(self._engine.sweep(), session)

    def _rounds(self) -> None:
        count = 0
        while not self._stop.wait(self._interval):
            count += 1
            try:
                self.tick(thorough=count % THOROUGH_EVERY == 0)
            except NavinError as error:
                # The next round tries again; a server that is away is told of once a round, without values.
                logger.warning("maintenance failed: %s", error)
