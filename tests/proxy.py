"""A TCP proxy before a server on a Unix socket, which does to connections what networks do to them."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from psycopg.conninfo import make_conninfo

Direction = Literal["request", "answer"]
#: libpq's Flush asks for nothing new. One that comes after the answer stays without one, and its connection is idle all the same.
_FLUSH = b"H\x00\x00\x00\x04"
#: Requests of a new connection: the startup message, and perhaps a question about what it has reached.
_HANDSHAKE, _IN_USE = 1, 3


@dataclass
class Cut:
    """One connection is to be cut at this share of its next request or answer."""

    direction: Direction
    #: 0 lets nothing of it through, 1 all of it.
    share: float
    #: With a reset (RST) and not an end (FIN).
    reset: bool
    #: While it is made, and not when it is in use.
    handshake: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a port of its own while its `with` block lasts."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._changed = threading.Condition()
        self._links: set[_Link] = set()
        #: Seconds after which a connection that waits for nothing is closed; None for never.
        self.idle: float | None = None
        self.swallowing = False
        self.cut: Cut | None = None

    def __enter__(self) -> Self:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Closing alone doesn't wake who waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.close(len(self._links))
        self.wait_for_links(0)

    def dsn(self, dsn: str, **options: str) -> str:
        """The DSN of the same database by way of this proxy. Without encryption, so that what is cut is PostgreSQL's protocol."""
        port = self._listener.getsockname()[1]
        return make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable", **options)

    @property
    def links(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def wait_for_links(self, count: int, seconds: float = 20.0) -> None:
        """Wait until at most so many connections are open."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._links) <= count, seconds), f"{len(self._links)} connections are still open"

    def close(self, count: int, *, reset: bool = False, chance: random.Random | None = None) -> None:
        """Close so many connections, which ones by chance, and wait until they are."""
        with self._changed:
            links = sorted(self._links, key=lambda link: link.number)
        left = len(links) - count
        for link in (chance or random.Random(0)).sample(links, count):
            link.close(reset)
        self.wait_for_links(left)

    @contextmanager
    def closing_idle(self, seconds: float) -> Iterator[None]:
        """Close what has been idle for so long, inside the block."""
        self.idle = seconds
        self._wake()
        try:
            yield
        finally:
            self.idle = None
            self._wake()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Take what is sent and give nothing on, inside the block."""
        self.swallowing = True
        yield
        self.swallowing = False

    def take(self, hit: Callable[[Cut], bool]) -> Cut | None:
        """The cut, for the one connection that it hits."""
        with self._changed:
            found, self.cut = (self.cut, None) if self.cut is not None and hit(self.cut) else (None, self.cut)
        return found

    def _wake(self) -> None:
        with self._changed:
            for link in self._links:
                link.wake()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            link = _Link(self, number, client)
            with self._changed:
                self._links.add(link)
            threading.Thread(target=link.run, args=(self._upstream,), daemon=True).start()

    def _ended(self, link: _Link) -> None:
        with self._changed:
            self._links.discard(link)
            self._changed.notify_all()


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, number: int, client: socket.socket) -> None:
        self.number = number
        self._proxy, self._client = proxy, client
        self._server = socket.socket(socket.AF_UNIX)
        self._waker, self._woken = socket.socketpair()
        self._reset: bool | None = None
        #: Whose turn it was, and how many requests there have been.
        self._turn: Direction = "answer"
        self._requests = 0

    def run(self, upstream: Path) -> None:
        client, server = self._client, self._server
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # Whoever ends a connection, its two sides end together.
            with suppress(ConnectionError, FileNotFoundError):
                server.connect(str(upstream))
                while self._step():
                    pass
        finally:
            self._end()
            self._proxy._ended(self)

    def close(self, reset: bool) -> None:
        self._reset = reset
        self.wake()

    def wake(self) -> None:
        # Ended meanwhile: there is nobody to wake.
        with suppress(OSError):
            self._waker.send(b"!")

    def _step(self) -> bool:
        """Wait for one thing to happen; False where it was the end."""
        idle = self._proxy.idle if self._turn == "answer" else None
        ready, _, _ = select.select([self._client, self._server, self._woken], [], [], idle)
        if not ready:
            return False
        if self._woken in ready:
            self._woken.recv(64)
            return self._reset is None
        return all(self._carry(source) for source in ready)

    def _carry(self, source: socket.socket) -> bool:
        data = source.recv(1 << 16)
        if not data or self._proxy.swallowing:
            return bool(data)
        direction: Direction = "request" if source is self._client else "answer"
        if data.replace(_FLUSH, b""):
            if direction == "request" and self._turn == "answer":
                self._requests += 1
            self._turn = direction
        target = self._server if source is self._client else self._client
        cut = self._proxy.take(self._hit(direction))
        if cut is None:
            target.sendall(data)
            return True
        target.sendall(data[: round(len(data) * cut.share)])
        self._reset = cut.reset
        self._end()
        cut.done.set()
        return False

    def _hit(self, direction: Direction) -> Callable[[Cut], bool]:
        def hit(cut: Cut) -> bool:
            ripe = self._requests <= _HANDSHAKE if cut.handshake else self._requests >= _IN_USE
            return ripe and cut.direction == direction

        return hit

    def _end(self) -> None:
        if self._reset and self._client.fileno() >= 0:
            # To linger for no time is to reset.
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for one in (self._client, self._server, self._waker, self._woken):
            one.close()
