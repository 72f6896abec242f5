"""How many connections may be in use at once: one count for threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class Permits:
    """A counting semaphore for threads and event loops together, first come first served."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[Callable[[], bool]] = deque()

    def _try(self, wake: Callable[[], bool] | None = None) -> bool:
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            if wake is not None:
                self._waiting.append(wake)
            return False

    def acquire(self) -> bool:
        """Wait for a permit; False, at once, where waiting would stop the event loop that has to give one back."""
        if self._try():
            return True
        if _inside_a_loop():
            return False
        event = threading.Event()

        def wake() -> bool:
            event.set()
            return True

        if not self._try(wake):
            self._await(event, wake)
        return True

    def _await(self, event: threading.Event, wake: Callable[[], bool]) -> None:
        try:
            event.wait()
        except BaseException:
            with self._lock:
                waiting = wake in self._waiting
                if waiting:
                    self._waiting.remove(wake)
            if not waiting:
                self.release()
            raise

    async def aacquire(self) -> None:
        if self._try():
            return
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        if self._try(lambda: _wake(loop, granted, self.release)):
            return
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            raise

    def release(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                wake = self._waiting.popleft()
            if wake():
                return


def _wake(loop: asyncio.AbstractEventLoop, granted: asyncio.Future[None], release: Callable[[], None]) -> bool:
    def grant() -> None:
        # A waiter that was cancelled meanwhile hands the permit on.
        if granted.done():
            release()
        else:
            granted.set_result(None)

    try:
        loop.call_soon_threadsafe(grant)
    except RuntimeError:
        return False
    return True


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
