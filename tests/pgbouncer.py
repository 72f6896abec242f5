"""A real pgbouncer in transaction mode, before the private PostgreSQL of a test."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from servers import ground

PORT = 6432
SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {place}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
max_prepared_statements = {kept}
"""


class Bouncer:
    """A pgbouncer's program."""

    def __init__(self, program: str) -> None:
        self.program = program
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
        assert found is not None, said
        self.version = (int(found[1]), int(found[2]))

    @property
    def keeps_statements(self) -> bool:
        """Whether this version can follow prepared statements from one server connection to the next."""
        return self.version >= (1, 21)

    @contextmanager
    def before(self, dsn: str, *, size: int = 3, kept: int = 0) -> Iterator[str]:
        """The DSN that leads through a pooler with `size` server connections, which keeps that many prepared statements."""
        with ground() as place:
            settings = place / "pgbouncer.ini"
            settings.write_text(self._settings(dsn, place, size, kept))
            user = _owner(str(conninfo_to_dict(dsn)["host"]))
            shutil.chown(place, user)
            # It refuses to run as root, and the server's socket is closed to everybody but its owner.
            become = ["-u", user] if os.getuid() == 0 else []
            with (place / "log").open("w") as log, subprocess.Popen([self.program, *become, str(settings)], stderr=log) as process:
                try:
                    through = make_conninfo(dsn, host=str(place), port=PORT)
                    _until_it_answers(through, process, place / "log")
                    yield through
                finally:
                    process.terminate()

    def _settings(self, dsn: str, place: Path, size: int, kept: int) -> str:
        parts = conninfo_to_dict(dsn)
        text = SETTINGS if self.keeps_statements else SETTINGS.replace("max_prepared_statements = {kept}\n", "")
        return text.format(host=parts["host"], port=parts["port"], user=parts["user"], place=place, size=size, kept=kept)


def _owner(path: str) -> str:
    return pwd.getpwuid(Path(path).stat().st_uid).pw_name


def _until_it_answers(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
