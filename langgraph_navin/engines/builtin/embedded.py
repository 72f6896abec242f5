"""A private PostgreSQL server that any number of processes share through one data directory.

Who uses the server holds a shared lock on a file; the server's own processes hold another. The kernel drops both when
a process ends, however it ends, so nothing has to be believed that a killed process wrote down.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from ...errors import EngineUnavailable
from . import embedded_home as homes
from .embedded_binaries import ADVICE, Binaries, last_lines, run, server_account

#: Seconds: for a start that has to recover after a crash, and for an orderly stop before a hard one.
START_SECONDS, STOP_SECONDS = 120.0, 30.0
_PAUSE = 0.03


class _LockFiles:
    """The lock files this process holds open. A forked child closes its copies, or it would keep the locks alive."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._guard = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._guard.acquire, after_in_parent=self._guard.release, after_in_child=self._forget)

    def open(self, path: Path) -> int:
        with self._guard:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self._open.add(handle)
            return handle

    def close(self, handle: int) -> None:
        with self._guard:
            self._open.discard(handle)
            os.close(handle)

    @contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        handle = self.open(path)
        try:
            yield handle
        finally:
            self.close(handle)

    def _forget(self) -> None:
        while self._open:
            os.close(self._open.pop())
        for server in _servers:
            server._forget()
        self._guard.release()


_servers: WeakSet[EmbeddedServer] = WeakSet()
_files = _LockFiles()


def _claimed(handle: int, exclusive: bool = True) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class EmbeddedServer:
    """One user of the PostgreSQL server of `data_dir`; the first one starts it, the last orderly one stops it.

    Processes may share a data directory, and a process may have several users. A forked child isn't a user until it
    calls `start()` itself. At the end of the process `stop()` is called if nobody did. Needs Linux or macOS, and the
    extra `embedded`. Safe to call from several threads.
    """

    def __init__(self, data_dir: str | os.PathLike[str] = ".navin", *, _binaries: Path | None = None) -> None:
        # The working directory may change later.
        self._data_dir = Path(os.path.realpath(data_dir))
        self._root = _binaries
        self._home: homes.Home | None = None
        self._users: int | None = None
        self._turn = threading.Lock()
        _servers.add(self)

    def start(self) -> str:
        """Start the server, or join the one that runs, and give its DSN. Calling it again revives a crashed server.

        The first start of a data directory takes a second or two. Raises `EngineUnavailable` when the server can't be
        had, and says why and what to do.
        """
        if os.name != "posix":
            raise EngineUnavailable(f"the embedded PostgreSQL needs Linux or macOS: {ADVICE}")
        with self._turn, self._reported():
            binaries = Binaries.find(self._root, server_account())
            homes.make(self._data_dir, binaries.account)
            with self._locked():
                self._home = homes.Home(self._data_dir, binaries.account)
                socket = self._serve(self._home, binaries)
                self._join()
        return f"host={socket} port=5432 user=postgres dbname=postgres"

    def stop(self) -> None:
        """Leave the server; the last user stops it. Calling it again does nothing. Raises `EngineUnavailable`."""
        with self._turn, self._reported():
            if self._users is None:
                return
            try:
                # Where the directory was removed, PostgreSQL notices within a minute and ends by itself.
                if self._data_dir.is_dir():
                    with self._locked():
                        self._leave(self._users)
            finally:
                _files.close(self._users)
                self._users = None
                atexit.unregister(self.stop)

    # Users

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise EngineUnavailable(f"the data directory {self._data_dir} can't be used: {error.strerror}{where}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl

        with _files.opened(self._data_dir / "lock") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _join(self) -> None:
        if self._users is not None:
            if os.fstat(self._users).st_nlink:
                return
            # The directory was removed and made again: this lock is seen by nobody.
            _files.close(self._users)
        self._users = _files.open(self._data_dir / "users")
        _claimed(self._users, exclusive=False)
        atexit.unregister(self.stop)
        atexit.register(self.stop)

    def _leave(self, users: int) -> None:
        if self._home is not None and _claimed(users):
            self._halt(self._home)

    def _forget(self) -> None:
        self._users = None
        self._turn = threading.Lock()

    # The server

    def _serve(self, home: homes.Home, binaries: Binaries) -> Path:
        with _files.opened(self._data_dir / "server") as lock:
            socket = self._reach(home, binaries, lock)
            if socket is None:
                self._launch(home, binaries, lock)
        if socket is None:
            with _files.opened(self._data_dir / "server") as lock:
                socket = self._reach(home, binaries, lock)
        if socket is None:
            log = (self._data_dir / "log").read_text(errors="replace")
            raise EngineUnavailable(f"the embedded PostgreSQL of {self._data_dir} didn't start:\n{last_lines(log)}")
        return socket

    def _reach(self, home: homes.Home, binaries: Binaries, lock: int) -> Path | None:
        """Wait until the running server answers and give its socket's directory; None when none runs (`lock` is then held)."""
        deadline = time.monotonic() + START_SECONDS
        while not _claimed(lock):
            socket = _recorded(lock)
            if socket and home.private(socket) and _answers(binaries, socket):
                return socket
            if socket and _lost(home, socket):
                self._halt(home)
            elif time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"a server of {self._data_dir} runs but doesn't answer after {START_SECONDS:.0f} seconds: it may still recover "
                    "(try again), or run in another container that shares the directory"
                )
            time.sleep(_PAUSE)
        return None

    def _launch(self, home: homes.Home, binaries: Binaries, lock: int) -> None:
        home.initialise(binaries, lock)
        if stranger := _postmaster(home):
            raise EngineUnavailable(f"another PostgreSQL server (process {stranger}) was started on {home.data}: stop it first")
        # No process of a server lives, so whatever this file says is out of date.
        (home.data / "postmaster.pid").unlink(missing_ok=True)
        socket = home.socket_directory(_recorded(lock))
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(socket), 0)
        settings = [part for name, value in home.settings(socket).items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [binaries.program("postgres"), "-D", home.data, *settings]
        handle = os.open(self._data_dir / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as log:
            # The shell leaves at once: the server is nobody's child here, and inherits the lock.
            run(["/bin/sh", "-c", '"$@" &', "sh", *command], binaries.account, output=log, keep=(lock,))

    def _halt(self, home: homes.Home) -> None:
        with _files.opened(self._data_dir / "server") as lock:
            for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS)):
                pid = _postmaster(home)
                if pid is not None:
                    _signal(pid, number)
                if _freed(lock, seconds):
                    break
            else:
                raise EngineUnavailable(f"the embedded PostgreSQL of {self._data_dir} doesn't stop")
            socket = _recorded(lock)
            if socket and home.private(socket):
                shutil.rmtree(socket)


def _answers(binaries: Binaries, socket: Path) -> bool:
    return binaries.run("pg_isready", "-q", "-h", socket, "-p", "5432", "-U", "postgres", "-d", "postgres").returncode == 0


def _recorded(lock: int) -> Path | None:
    text = os.fsdecode(os.pread(lock, 4096, 0))
    return Path(text) if text.startswith(f"{homes.SOCKETS}/") and "\0" not in text else None


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # ended meanwhile, which is what was wanted
        os.kill(pid, number)


def _freed(lock: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _claimed(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _notes(home: homes.Home) -> list[str]:
    try:
        return (home.data / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _postmaster(home: homes.Home) -> int | None:
    """The process that PostgreSQL's own file names, when it's really a server on this data."""
    import psutil

    try:
        process = psutil.Process(int(_notes(home)[0]))
        try:
            ours = process.cwd() == str(home.data)
        except psutil.AccessDenied:
            # A container's root may not ask where another user's process is.
            ours = str(home.data) in process.cmdline()
    except (IndexError, ValueError, psutil.Error):
        return None
    return process.pid if ours else None


def _lost(home: homes.Home, socket: Path) -> bool:
    """True when the server says it's ready on a socket that is gone: something cleaned up the directory."""
    notes = _notes(home)
    ready = len(notes) > 7 and notes[7].strip() == "ready"
    return ready and not (socket / ".s.PGSQL.5432").exists() and _postmaster(home) is not None
