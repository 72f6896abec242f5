"""Where an embedded server keeps its things: the data directory, its contents, and the directory of its socket.

    .navin/             the data directory the application names
      .gitignore        `*`
      lock              one start or stop at a time
      users             a shared lock per process that uses the server
      server            locked while any process of the server lives; its text names the socket's directory
      log               what the server printed since its last start
      location          only when `data` is elsewhere: where
      data/             PostgreSQL's own

Where the server's user can't reach the data directory, `data` is under `/var/lib/langgraph-navin`, beside a file `owner`
that names the data directory it belongs to.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from ...errors import EngineUnavailable
from .embedded_binaries import Account, Binaries, last_lines, owned_by_us, run, shelter

#: Short, since a socket's whole path has 104 to 108 bytes; the same for every process, unlike TMPDIR.
SOCKETS = Path("/tmp")
#: Below this many bytes, the shared memory of a container can't hold what a parallel index build takes.
ENOUGH_SHARED_MEMORY = 512 * 1024 * 1024


def make(data_dir: Path, account: Account | None) -> None:
    """Make the data directory when it's missing; an existing one keeps its mode. Raises `OSError`."""
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        data_dir.mkdir()
        # The server's user passes through, it can't list.
        data_dir.chmod(0o711 if account else 0o700)
    except FileExistsError:
        if not data_dir.is_dir():
            raise
    if not any(data_dir.iterdir()):
        _write(data_dir / ".gitignore", "*\n")


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(path: Path) -> str:
    return path.read_text(errors="replace").strip() if path.exists() else ""


class Home:
    """The directories of one server. Made and used under the data directory's lock.

    `place` holds `data`: the data directory itself, or one made elsewhere because the server's user can't reach it.
    Raises `EngineUnavailable` when the recorded place is gone or belongs to another data directory.
    """

    def __init__(self, data_dir: Path, account: Account | None) -> None:
        self.data_dir = data_dir
        self.account = account
        self.place = self._find_place()
        self.data = self.place / "data"

    @property
    def uid(self) -> int:
        return self.account.uid if self.account else os.geteuid()

    # The place

    def _find_place(self) -> Path:
        recorded = _text(self.data_dir / "location")
        if recorded:
            return self._recorded_place(Path(recorded))
        if self.account is None or self._reached(self.account):
            return self.data_dir
        if (self.data_dir / "data").exists():
            raise EngineUnavailable(
                f"the server's user can't reach {self.data_dir} any more: let it pass through every directory above (chmod o+x), "
                "or move the data directory"
            )
        return self._make_place()

    def _reached(self, account: Account) -> bool:
        return run(["/bin/sh", "-c", 'cd "$1"', "sh", self.data_dir], account).returncode == 0

    def _make_place(self) -> Path:
        # A new name each time: who removed the data directory gets an empty one, and no other's data by a like path.
        name = f"{hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:12]}-"
        place = Path(tempfile.mkdtemp(prefix=name, dir=shelter()))
        place.chmod(0o711)
        _write(place / "owner", str(self.data_dir))
        _write(self.data_dir / "location", f"{place}\n")
        return place

    def _recorded_place(self, place: Path) -> Path:
        if not place.is_dir():
            raise EngineUnavailable(
                f"the data of {self.data_dir} was kept in {place}, which is gone: restore it, "
                f"or remove {self.data_dir / 'location'} to start empty"
            )
        if not owned_by_us(place):
            raise EngineUnavailable(f"{place} holds the data of {self.data_dir}: it must be a directory only its owner, root, can change")
        owner = _text(place / "owner")
        if owner != str(self.data_dir):
            self._take_over(place, Path(owner))
        return place

    def _take_over(self, place: Path, owner: Path) -> None:
        """The data directory was moved, or copied: a copy would share the data of the original."""
        if _text(owner / "location") == str(place):
            raise EngineUnavailable(
                f"{self.data_dir} is a copy of {owner}, whose data is in {place}: remove {self.data_dir / 'location'} to start empty"
            )
        _write(place / "owner", str(self.data_dir))

    # The data

    def initialise(self, binaries: Binaries, lock: int) -> None:
        """Make the database cluster unless there is one of the same major version. Raises `EngineUnavailable`.

        `lock` is held by what makes it, which may outlive this process.
        """
        if (self.data / "PG_VERSION").exists():
            self._check(binaries)
            return
        # Made aside and renamed when whole: an interrupted one is never taken for a cluster.
        work = self.place / "data.new"
        if work.exists():
            shutil.rmtree(work)
        self._give(work)
        self._initdb(binaries, work, lock)
        work.rename(self.data)
        _sync(self.place)

    def _initdb(self, binaries: Binaries, work: Path, lock: int) -> None:
        # macOS has no C.UTF-8; its own UTF-8 classes with byte order are the same thing.
        locale = ["--locale=C", "--lc-ctype=en_US.UTF-8"] if sys.platform == "darwin" else ["--locale=C.UTF-8"]
        arguments = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-instructions", *locale]
        done = binaries.run("initdb", *arguments, "-D", work, keep=(lock,))
        if done.returncode:
            shutil.rmtree(work)
            raise EngineUnavailable(f"no database could be made in {self.place}:\n{last_lines(done.stdout)}")

    def _check(self, binaries: Binaries) -> None:
        owner = self.data.stat().st_uid
        if owner != self.uid:
            raise EngineUnavailable(f"{self.data} belongs to the OS user {owner}, and the server runs as {self.uid}: start it as before")
        found = _text(self.data / "PG_VERSION")
        if found != binaries.major:
            raise EngineUnavailable(
                f"{self.data} was made by PostgreSQL {found}, and the embedded server is PostgreSQL {binaries.major}. "
                f"Nothing was changed. Start a server of PostgreSQL {found} on it, export with its pg_dump, "
                "and load the export into a new data directory"
            )

    def _give(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        if self.account:
            # Not through a link, should someone put one there meanwhile.
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    # The socket

    def private(self, path: Path) -> bool:
        """True when only the server's user can enter `path`: the socket needs no password because of that."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_uid == self.uid and not status.st_mode & 0o077

    def socket_directory(self, before: Path | None) -> Path:
        """An empty private directory: the one used before where it's still ours, or a new one nobody could foresee."""
        if not _keeps_names(SOCKETS):
            raise EngineUnavailable(f"every user can rename what others have in {SOCKETS}: set its sticky bit (chmod +t)")
        status = self.data_dir.stat()
        name = f"{self.data}\0{status.st_dev}\0{status.st_ino}"
        prefix = f"navin-{hashlib.sha256(os.fsencode(name)).hexdigest()[:10]}-"
        # A copied data directory names the original's socket: the name must be made for this one.
        if before and before.parent == SOCKETS and before.name.startswith(prefix) and self._reclaim(before):
            return before
        while True:
            path = SOCKETS / f"{prefix}{secrets.token_hex(4)}"
            if self._reclaim(path):
                return path

    def _reclaim(self, path: Path) -> bool:
        try:
            self._give(path)
        except FileExistsError:
            if not self.private(path):
                return False
        for left in path.iterdir():
            left.unlink()
        return True

    # The settings

    def settings(self, socket: Path) -> dict[str, str]:
        """What the server is started with: local, durable, and a log that never holds a value."""
        return {
            "listen_addresses": "",
            "unix_socket_directories": str(socket),
            "unix_socket_permissions": "0700",
            "port": "5432",
            "max_connections": "100",
            "fsync": "on",
            "jit": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "dynamic_shared_memory_type": _shared_memory(),
            "logging_collector": "off",
            "log_statement": "none",
            "log_min_duration_statement": "-1",
            "log_min_messages": "fatal",
            "log_min_error_statement": "panic",
            "log_error_verbosity": "terse",
            "log_parameter_max_length": "0",
            "log_parameter_max_length_on_error": "0",
        }


def _keeps_names(directory: Path) -> bool:
    """True when other users can't rename or remove our directories in this one."""
    status = directory.stat()
    return status.st_uid in (0, os.geteuid()) and bool(status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022)


def _shared_memory(memory: Path = Path("/dev/shm")) -> str:
    if sys.platform != "linux":
        return "posix"
    if not memory.is_dir():
        return "mmap"
    status = os.statvfs(memory)
    return "posix" if status.f_blocks * status.f_frsize >= ENOUGH_SHARED_MEMORY else "mmap"
