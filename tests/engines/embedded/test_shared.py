"""Several processes use one embedded server; they fork, and are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from embedded_help import FORK, HOLD, another, ask, command, end, environment, postmaster, processes, script, socket_of, wait_for
from langgraph_navin.engines.builtin.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


def test_the_last_user_stops_the_server(data_dir: Path) -> None:
    one = EmbeddedServer(data_dir)
    dsn = one.start()
    with another(HOLD, data_dir) as process:
        one.stop()
        assert ask(dsn) == "here"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    assert processes(data_dir / "data") == []


def test_two_users_in_one_process_count_twice(start: Callable[[], EmbeddedServer], data_dir: Path) -> None:
    one, other = start(), start()
    one.stop()
    assert ask(other.start()) == "here"
    other.stop()
    assert processes(data_dir / "data") == []


def test_four_processes_race_for_a_fresh_directory(place: Path) -> None:
    body = HOLD + "\nwith psycopg.connect(server.start()) as c: c.execute('select 1')\nserver.stop()"
    racers = [
        subprocess.Popen(command(body, place / "navin"), env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for racer in racers:
        _, complaint = racer.communicate(timeout=120)
        assert racer.returncode == 0, complaint
    assert processes(place / "navin" / "data") == []


def test_a_forked_child_neither_stops_the_server_nor_keeps_it(data_dir: Path) -> None:
    body = """
if os.fork() == 0:
    os.close(says)
    server.stop()
    os.read(said, 1)
    sys.exit()
with psycopg.connect(dsn) as connection:
    connection.execute("select 1")
server.stop()
print((data_dir / "data/postmaster.pid").exists())
os.close(says)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert script(FORK + body, data_dir).split() == ["False", "0"]
    assert processes(data_dir / "data") == []


def test_a_child_of_multiprocessing_may_become_a_user_itself(data_dir: Path) -> None:
    body = """
def work():
    assert server.start() == dsn
    os.write(says, b"started")
    os.read(waits, 1)
waits, ends = os.pipe()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
os.read(said, 7)
server.stop()
with psycopg.connect(dsn) as connection:
    print(connection.execute("select word from kept").fetchone()[0])
os.write(ends, b"x")
child.join()
print(child.exitcode)
"""
    assert script(FORK + body, data_dir).split() == ["here", "0"]
    # multiprocessing ends its children without atexit: the next user cleans up.
    one = EmbeddedServer(data_dir)
    one.start()
    one.stop()
    assert processes(data_dir / "data") == []


def test_a_fork_during_a_start_leaves_a_usable_child(data_dir: Path) -> None:
    body = """
import threading
thread = threading.Thread(target=server.start)
with server._locked():
    thread.start()
    while not server._turn.locked():
        time.sleep(0.001)
    if os.fork() == 0:
        os._exit(0 if server.stop() is None else 1)
thread.join()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert script(FORK + body, data_dir) == "0"


def test_the_server_of_a_killed_process_is_adopted_and_stopped(data_dir: Path) -> None:
    with another(HOLD, data_dir) as process:
        pid = postmaster(data_dir)
        process.kill()
        process.wait(60)
    one = EmbeddedServer(data_dir)
    assert ask(one.start()) == "here"
    assert postmaster(data_dir) == pid
    one.stop()
    assert processes(data_dir / "data") == []


def test_a_killed_server_comes_back_at_the_same_dsn(start: Callable[[], EmbeddedServer], data_dir: Path) -> None:
    one = start()
    dsn = one.start()
    os.kill(postmaster(data_dir), signal.SIGKILL)
    assert one.start() == dsn
    assert ask(dsn) == "here"


def test_both_killed_leaves_nothing_in_the_way(data_dir: Path) -> None:
    with another(HOLD, data_dir) as process:
        process.kill()
        os.kill(postmaster(data_dir), signal.SIGKILL)
        process.wait(60)
    one = EmbeddedServer(data_dir)
    assert ask(one.start()) == "here"
    one.stop()
    assert processes(data_dir / "data") == []


@pytest.mark.parametrize("text", ["", "garbage\n", "{pid}\n", "{pid}\n{data}\n1\n5432\n/tmp\n\n  1 2\nready\n"])
def test_a_stale_pid_file_is_not_believed(start: Callable[[], EmbeddedServer], data_dir: Path, text: str) -> None:
    (data_dir / "data" / "postmaster.pid").write_text(text.format(pid=os.getpid(), data=data_dir / "data"))
    assert ask(start().start()) == "here"


def test_a_root_that_may_not_see_where_processes_are_still_stops_its_server(data_dir: Path) -> None:
    one = EmbeddedServer(data_dir)
    one.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil.Process, "cwd", lambda self: (_ for _ in ()).throw(psutil.AccessDenied()))
        one.stop()
    assert processes(data_dir / "data") == []


def test_a_socket_that_was_cleaned_away_comes_back(start: Callable[[], EmbeddedServer]) -> None:
    one = start()
    dsn = one.start()
    shutil.rmtree(socket_of(dsn))
    assert one.start() == dsn
    assert ask(dsn) == "here"


def test_an_interrupted_first_start_is_begun_again(place: Path) -> None:
    body = "print('begins', flush=True)\nEmbeddedServer(data_dir).start()"
    with another(body, place / "navin") as process:
        wait_for((place / "navin" / "data.new" / "PG_VERSION").exists)
        process.kill()
        process.wait(60)
    assert not (place / "navin" / "data").exists()
    one = EmbeddedServer(place / "navin")
    assert ask(one.start(), "select 1") == 1
    assert not (place / "navin" / "data.new").exists()
    one.stop()


def test_a_removed_directory_starts_empty_whatever_still_runs(start: Callable[[], EmbeddedServer], data_dir: Path) -> None:
    one = start()
    old = postmaster(data_dir)
    shutil.rmtree(data_dir)
    dsn = one.start()
    assert ask(dsn, "select to_regclass('kept')") is None
    assert postmaster(data_dir) != old
    end(old)


def test_stopping_after_the_directory_is_gone_is_no_error(data_dir: Path) -> None:
    one = EmbeddedServer(data_dir)
    one.start()
    old = postmaster(data_dir)
    shutil.rmtree(data_dir)
    one.stop()
    end(old)
    assert not data_dir.exists()
