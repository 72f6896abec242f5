"""A pooler in transaction mode, as pgbouncer before 1.21: many clients on few server connections.

A client has a server connection from the first message of a transaction until PostgreSQL says that it is over; the
next transaction gets the connection that was idle for longest, so that a client meets all of them in turn. Nothing is
kept for a client: what it leaves on a server connection, the next one finds there. Prepared statements are passed
through untouched, and therefore lost. Whoever reaches its socket is trusted, as by the servers of these tests.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from servers import ground

PORT = 6432
#: Requests that come in a start-up message's place.
CANCEL, SSL, GSS = 80877102, 80877103, 80877104
#: Messages that PostgreSQL answers with ReadyForQuery: Query, Sync, FunctionCall.
ANSWERED = b"QSF"
FLUSH = b"H"  # asks for nothing but what is ready
#: A failed read: the other side hung up.
GONE = (asyncio.IncompleteReadError, ConnectionError)


async def message(reader: asyncio.StreamReader) -> bytes:
    """The next message, with its letter and length."""
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


@dataclass(frozen=True)
class Server:
    """A connection to PostgreSQL, and what it told of itself at its start."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parameters: bytes


@dataclass
class Turn:
    """A client's server connection during a transaction."""

    server: Server
    #: Answers that are still to come.
    due: int = 0
    #: Whether something was sent since the last message that will be answered.
    started: bool = False
    over: bool = False

    def send(self, sent: bytes) -> None:
        if sent[:1] != FLUSH:
            self.started = sent[0] not in ANSWERED
            self.due += not self.started
        self.server.writer.write(sent)

    def hear(self, received: bytes) -> None:
        if received[:1] == b"Z":
            self.due -= 1
            self.over = received[5:] == b"I" and self.due == 0 and not self.started


@dataclass
class Pooler:
    """The pooler of one server and database. `dsn` leads through it."""

    dsn: str
    host: str
    port: int
    startup: bytes
    idle: asyncio.Queue[Server | None] = field(default_factory=asyncio.Queue)
    clients: set[asyncio.Task[None]] = field(default_factory=set)
    #: Transactions that were passed on.
    turns: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.clients.add(task)
        try:
            # The streams of Python 3.11 can't bear that their task ends as cancelled.
            with suppress(*GONE, asyncio.CancelledError):
                if await self._welcomed(reader, writer):
                    await self._transactions(reader, writer)
        finally:
            self.clients.discard(task)
            writer.close()

    async def _welcomed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Greet a client, whoever it says it is."""
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            (code,) = struct.unpack("!I", (await reader.readexactly(length - 4))[:4])
            if code not in (SSL, GSS):
                break
            writer.write(b"N")
        if code == CANCEL:
            return False
        server = await self._server()
        self.idle.put_nowait(server)
        welcome, ready = b"R" + struct.pack("!II", 8, 0), b"Z" + struct.pack("!I", 5) + b"I"
        # The key is the client's own: it has no server connection yet.
        writer.write(welcome + server.parameters + b"K" + struct.pack("!I", 12) + secrets.token_bytes(8) + ready)
        return True

    async def _server(self) -> Server:
        """The server connection that was idle for longest; waits for one."""
        kept = await self.idle.get()
        if kept is not None and not kept.reader.at_eof():
            return kept
        try:
            return await self._dialled()
        except BaseException:
            self.idle.put_nowait(None)
            raise

    async def _dialled(self) -> Server:
        reader, writer = await asyncio.open_unix_connection(f"{self.host}/.s.PGSQL.{self.port}")
        writer.write(self.startup)
        parameters = b""
        while (told := await message(reader))[:1] != b"Z":
            parameters += told if told[:1] == b"S" else b""
        return Server(reader, writer, parameters)

    async def _transactions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn: Turn | None = None
        answers: asyncio.Task[None] | None = None
        try:
            while (sent := await message(reader))[:1] != b"X":
                if turn is None or turn.over:
                    if sent[:1] == FLUSH:
                        continue
                    turn = Turn(await self._server())
                    self.turns += 1
                    answers = asyncio.create_task(self._answers(turn, writer))
                turn.send(sent)
        finally:
            if answers is not None:
                answers.cancel()

    async def _answers(self, turn: Turn, writer: asyncio.StreamWriter) -> None:
        """Pass on what the server says until the transaction is over."""
        try:
            while not turn.over:
                received = await message(turn.server.reader)
                turn.hear(received)
                writer.write(received)
        except GONE:
            writer.close()
        finally:
            # A client that leaves in the middle takes the connection with it.
            if not turn.over:
                turn.server.writer.close()
            self.idle.put_nowait(turn.server if turn.over else None)

    async def stop(self) -> None:
        for client in self.clients:
            client.cancel()
        await asyncio.gather(*self.clients)
        while not self.idle.empty():
            if (server := self.idle.get_nowait()) is not None:
                server.writer.close()


@contextmanager
def pooler(dsn: str, size: int = 3) -> Iterator[Pooler]:
    """A running pooler with that many connections to the server and database of `dsn`."""
    parts = conninfo_to_dict(dsn)
    told = {"user": parts["user"], "database": parts["dbname"], "client_encoding": "UTF8"}
    body = struct.pack("!I", 196608) + b"".join(f"{name}\0{value}\0".encode() for name, value in told.items()) + b"\0"
    with ground() as place:
        through = make_conninfo(dsn, host=str(place), port=PORT)
        made = Pooler(through, str(parts["host"]), int(str(parts["port"])), struct.pack("!I", len(body) + 4) + body)
        for _ in range(size):
            made.idle.put_nowait(None)
        started, done = threading.Event(), threading.Event()
        thread = threading.Thread(target=asyncio.run, args=(_life(made, place, started, done),), name="pooler")
        thread.start()
        started.wait()
        try:
            yield made
        finally:
            done.set()
            thread.join()


async def _life(made: Pooler, place: Path, started: threading.Event, done: threading.Event) -> None:
    async with await asyncio.start_unix_server(made.serve, place / f".s.PGSQL.{PORT}"):
        started.set()
        await asyncio.to_thread(done.wait)
        await made.stop()
