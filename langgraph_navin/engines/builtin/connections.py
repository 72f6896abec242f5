"""Connections to PostgreSQL: one cap over every thread, event loop and colour.

A free list per event loop and one for threads; no background task, no check when one is taken. A connection that
turns out to be dead takes all idle ones with it, and the work is done again on a fresh one (`session`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict

from ...errors import EngineRetryable, EngineUnavailable, InvalidRequest, NavinError
from .faults import Scrubbed
from .permits import Permits
from .pooling import THRESHOLD, WHO_ANSWERS, name_apart, prepare_if_direct

Sync: TypeAlias = Connection[Any]
Async: TypeAlias = AsyncConnection[Any]


class Connections:
    """Connections of one `Navin`, made when needed and kept for the next use.

    `prepare` None prepares statements where PostgreSQL itself answers and not where a pooler does (`pooling`).
    """

    def __init__(
        self, dsn: str, *, cap: int = 16, prepare: bool | None = None, configure: Callable[[Sync | Async], None] | None = None
    ) -> None:
        self._dsn = dsn
        self._cap = cap
        self._options: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": THRESHOLD if prepare else None,
            "application_name": "navin",
            "client_encoding": "utf8",
        }
        self._options |= waiting(dsn)
        self._prepare = prepare
        self._configure = configure or _nothing
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._permits = Permits(self._cap)
        self._lock = threading.Lock()
        self._idle: deque[Sync] = deque()
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._open = 0

    def _usable(self) -> None:
        if self._closed:
            raise EngineUnavailable("this Navin is closed; open it again with Navin.open()")
        if self._pid != os.getpid():
            # A forked child must not speak on its parent's sockets. psycopg leaves them alone when they are dropped.
            self._start()

    # --- blocking ---------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self, *, fresh: bool = False) -> Iterator[Sync]:
        """A healthy connection in autocommit, given back afterwards; `fresh` never takes a kept one."""
        self._usable()
        permitted = self._permits.acquire()
        try:
            # Without a permit a connection past the cap, for this one use: the alternative is a loop that stands still for good.
            connection = (None if fresh or not permitted else self._kept(self._idle)) or self._connect()
            with self._lent(connection, self._idle if permitted else None):
                yield connection
        finally:
            if permitted:
                self._permits.release()

    def _kept(self, idle: deque[Any]) -> Any:
        # Locked: others end idle connections of this list to make room.
        with self._lock:
            return idle.pop() if idle else None

    def _connect(self) -> Sync:
        self._make_room()
        try:
            return self._dialled()
        except BaseException as error:
            failed = self._not_connected(error)
        raise no_answer(failed) from Scrubbed(failed)

    def _dialled(self) -> Sync:
        connection = psycopg.connect(self._dsn, **self._options)
        with self._beginning(connection):
            if self._prepare is None:
                prepare_if_direct(connection, connection.execute(WHO_ANSWERS).fetchone())
        return connection

    # --- awaiting ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def aconnection(self, *, fresh: bool = False) -> AsyncIterator[Async]:
        """As `connection`, for the running event loop."""
        self._usable()
        await self._permits.aacquire()
        try:
            mine = await self._mine()
            connection = (None if fresh else self._kept(mine.idle)) or await self._aconnect()
            with self._lent(connection, mine.idle):
                yield connection
        finally:
            self._permits.release()

    async def _mine(self) -> _Loop:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._drop_closed_loops()
            with self._lock:
                found = self._loops[loop] = _Loop(self._forget)
            await found.watch()
        return found

    async def _aconnect(self) -> Async:
        self._make_room()
        try:
            return await self._adialled()
        except BaseException as error:
            failed = self._not_connected(error)
        raise no_answer(failed) from Scrubbed(failed)

    async def _adialled(self) -> Async:
        connection = await AsyncConnection.connect(self._dsn, **self._options)
        with self._beginning(connection):
            if self._prepare is None:
                prepare_if_direct(connection, await (await connection.execute(WHO_ANSWERS)).fetchone())
        return connection

    # --- both -------------------------------------------------------------------------------------------------

    @contextmanager
    def _beginning(self, connection: Sync | Async) -> Iterator[None]:
        """Make a new connection ready; it is ended if that fails or is cancelled."""
        try:
            name_apart(connection)
            self._configure(connection)
            yield
        except BaseException:
            connection.pgconn.finish()
            raise

    def _make_room(self) -> None:
        """Count a connection to come; past the cap, an idle one of another loop or of the threads makes room."""
        with self._lock:
            self._open += 1
            if self._open <= self._cap:
                return
            lists: list[deque[Any]] = [self._idle, *(loop.idle for loop in self._loops.values())]
            for idle in lists:
                if idle:
                    self._finish(idle.popleft())
                    return

    def _not_connected(self, error: BaseException) -> psycopg.Error:
        """The error to tell of, once its handler has ended: psycopg's own text quotes the DSN and must not stay in a context."""
        with self._lock:
            self._open -= 1
        if isinstance(error, psycopg.Error):
            return error
        raise error

    def _finish(self, connection: Sync | Async) -> None:
        # On the libpq connection: it needs no event loop, and a closed loop's connections can be ended too.
        connection.pgconn.finish()
        self._open -= 1

    @contextmanager
    def _lent(self, connection: Sync | Async, idle: deque[Any] | None) -> Iterator[None]:
        try:
            yield
        except Exception:
            raise
        except BaseException:
            # Cancelled or interrupted: a request to cancel may still be on its way, and must not meet the next user.
            connection.pgconn.finish()
            raise
        finally:
            self._give_back(connection, idle)

    def _give_back(self, connection: Any, idle: deque[Any] | None) -> None:
        with self._lock:
            if self._pid != os.getpid():
                return
            if idle is not None and not self._closed and _is_clean(connection):
                idle.append(connection)
            else:
                self._finish(connection)

    def drop_idle(self) -> None:
        """End every idle connection: one was found dead, and the others may be."""
        with self._lock:
            lists: list[deque[Any]] = [self._idle, *(loop.idle for loop in self._loops.values())]
            for idle in lists:
                while idle:
                    self._finish(idle.pop())

    def _forget(self, loop: _Loop) -> None:
        with self._lock:
            while loop.idle:
                self._finish(loop.idle.pop())
            for key, value in list(self._loops.items()):
                if value is loop:
                    del self._loops[key]

    def _drop_closed_loops(self) -> None:
        for key, loop in list(self._loops.items()):
            if key.is_closed():
                self._forget(loop)

    def close(self) -> None:
        """End every idle connection; those in use end when they are given back."""
        self._closed = True
        if self._pid == os.getpid():
            self.drop_idle()


class _Loop:
    """An event loop's free list. It ends with its loop: `asyncio.run` closes asynchronous generators before the loop."""

    def __init__(self, forget: Callable[[_Loop], None]) -> None:
        self.idle: deque[Async] = deque()
        self._forget = forget
        self._keeper = self._keep()

    async def watch(self) -> None:
        await anext(self._keeper)

    async def _keep(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._forget(self)


#: Seconds to wait for a server that doesn't answer as a connection is made.
PATIENCE = 10
#: How long a host that is gone is waited for: without these, for as long as the system likes, which is minutes to hours.
#: The DSN's own word on any of them stands. Only for TCP; a socket of this machine ends with its server.
WAITING: dict[str, Any] = {
    "connect_timeout": PATIENCE,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def waiting(dsn: str) -> dict[str, Any]:
    """The limits of the wait for a server, as options of `connect`."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as error:
        failed = error
    else:
        return {name: value for name, value in WAITING.items() if name not in given}
    # Outside the handler: psycopg's own message quotes the text, and with it a password.
    raise no_answer(failed) from Scrubbed(failed)


def _is_clean(connection: Sync | Async) -> bool:
    """Whether nothing of its last use is left: no transaction, and no pipeline, in which a write would never be committed."""
    pg = connection.pgconn
    return (
        not connection.closed
        and pg.transaction_status == psycopg.pq.TransactionStatus.IDLE
        and pg.pipeline_status == psycopg.pq.PipelineStatus.OFF
    )


def _nothing(connection: Sync | Async) -> None:
    pass


def no_answer(error: psycopg.Error) -> NavinError:
    """The error of a DSN that doesn't answer: what was tried is in the DSN, which may hold a password, and stays out."""
    if isinstance(error, psycopg.ProgrammingError):
        return InvalidRequest("dsn can't be read: it looks like postgresql://user:password@host:5432/database", field="dsn")
    state = f", {error.sqlstate}" if error.sqlstate else ""
    return EngineRetryable(
        f"can't connect to PostgreSQL ({type(error).__name__}{state}): check that the server runs, and host, port, user, password "
        "and database of the DSN; without a DSN, Navin.open() starts a server of its own",
        engine="builtin",
    )
