"""Many setups at once, and what the saver says, and doesn't say, when PostgreSQL fails."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from langgraph_navin.errors import EngineRetryable, EngineUnavailable, InvalidRequest
from langgraph_navin.saver import NavinSaver, migrations
from saver_subjects import COLOURS, Dialled, Do, fresh_database, put_arguments, thread


@pytest.fixture(scope="module")
def dsn(server_dsn: str) -> Iterator[str]:
    with fresh_database(server_dsn) as fresh:
        NavinSaver(Dialled(fresh)).setup()
        yield fresh


@pytest.fixture
def bare_dsn(server_dsn: str) -> Iterator[str]:
    """A database without checkpoint tables."""
    with fresh_database(server_dsn) as fresh:
        yield fresh


# --- setup -----------------------------------------------------------------------------------------


def test_eight_setups_at_once_make_one_set_of_tables(bare_dsn: str) -> None:
    saver, together = NavinSaver(Dialled(bare_dsn)), threading.Barrier(8)

    def set_up(number: int) -> None:
        together.wait()
        if number % 2:
            saver.setup()
        else:
            asyncio.run(saver.asetup())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(set_up, range(8)))
    with psycopg.connect(bare_dsn) as conn:
        versions = conn.execute("SELECT v FROM checkpoint_migrations ORDER BY v").fetchall()
        broken = conn.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid").fetchall()
        locks = conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchall()
    assert versions == [(version,) for version in range(len(versions))]
    assert len(versions) > 5
    assert (broken, locks) == ([], [(0,)])


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_setup_that_never_gets_its_turn_says_so(bare_dsn: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    do = Do(NavinSaver(Dialled(bare_dsn)), colour)
    monkeypatch.setattr(migrations, "PATIENCE", 0.0)
    with psycopg.connect(bare_dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (migrations._LOCK,))
        with pytest.raises(EngineRetryable, match="another process"):
            await do("setup")
    await do("setup")
    assert await do("get_tuple", thread()) is None


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_setup_of_finished_tables_needs_no_right_to_create(bare_dsn: str, colour: str) -> None:
    NavinSaver(Dialled(bare_dsn)).setup()
    with psycopg.connect(bare_dsn, autocommit=True) as conn:
        conn.execute("GRANT SELECT ON checkpoint_migrations TO pg_monitor")
    await Do(NavinSaver(Dialled(make_conninfo(bare_dsn, options="-c role=pg_monitor"))), colour)("setup")


# --- failures --------------------------------------------------------------------------------------


def _told(error: BaseException) -> str:
    """Everything that a log would hold of an error, chained errors included."""
    return "".join(traceback.format_exception(error)) + repr(error.__context__)


@pytest.mark.parametrize("colour", COLOURS)
async def test_missing_tables_name_the_remedy(bare_dsn: str, colour: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"call setup\(\)") as caught:
        await Do(NavinSaver(Dialled(bare_dsn)), colour)("get_tuple", thread())
    assert not caught.value.retryable


@pytest.mark.parametrize("colour", COLOURS)
async def test_an_unreachable_server_is_retryable_and_its_address_untold(colour: str) -> None:
    do = Do(NavinSaver(Dialled("postgresql://ann:hunter2@127.0.0.1:1/secretbase")), colour)
    put = [thread(), *put_arguments(do.saver, text=["a"])]
    for verb, arguments in [("get_tuple", put[:1]), ("put", put)]:
        with pytest.raises(EngineRetryable) as caught:
            await do(verb, *arguments)
        assert "OperationalError" in str(caught.value)
        assert not any(secret in _told(caught.value) for secret in ["hunter2", "secretbase", "127.0.0.1"])


class Cut(Dialled):
    """Lends connections whose session the server has just ended; `always` ends fresh ones too."""

    def __init__(self, dsn: str, *, always: bool) -> None:
        super().__init__(dsn)
        self.always = always

    def _end(self, pid: int, fresh: bool) -> None:
        if fresh and not self.always:
            return
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))

    @contextmanager
    def connection(self, *, fresh: bool = False) -> Iterator[psycopg.Connection[Any]]:
        with super().connection() as connection:
            self._end(connection.info.backend_pid, fresh)
            yield connection

    @asynccontextmanager
    async def aconnection(self, *, fresh: bool = False) -> Any:
        async with super().aconnection() as connection:
            self._end(connection.info.backend_pid, fresh)
            yield connection


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_kept_connection_that_died_is_replaced(dsn: str, colour: str) -> None:
    connections, config = Cut(dsn, always=False), thread()
    do = Do(NavinSaver(connections), colour)
    saved = await do("put", config, *put_arguments(do.saver, text=["a"]))
    await do("put_writes", saved, [("text", ["b"])], "task-1")
    assert (await do("get_tuple", config)).pending_writes == [("task-1", "text", ["b"])]
    assert [found.config for found in await do.list(config)] == [saved]
    assert (connections.dropped, connections.out) == (4, 0)


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_lost_connection_is_retryable_for_reads_only(dsn: str, colour: str) -> None:
    do = Do(NavinSaver(Cut(dsn, always=True)), colour)
    with pytest.raises(EngineRetryable):
        await do("get_tuple", thread())
    with pytest.raises(EngineUnavailable) as caught:
        await do("put", thread(), *put_arguments(do.saver, text=["a"]))
    assert not caught.value.retryable


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_value_postgresql_cant_hold_is_refused_whole_and_untold(dsn: str, colour: str, caplog: pytest.LogCaptureFixture) -> None:
    do, config = Do(NavinSaver(Dialled(dsn)), colour), thread()
    arguments = put_arguments(do.saver, token="hunter2\x00", other=["kept apart"])  # a traceback quotes the call
    with pytest.raises(InvalidRequest, match="UntranslatableCharacter") as caught:
        await do("put", config, *arguments)
    assert "hunter2" not in _told(caught.value) + caplog.text
    with psycopg.connect(dsn) as conn:
        blobs = conn.execute("SELECT count(*) FROM checkpoint_blobs WHERE thread_id = %s", (config["configurable"]["thread_id"],))
        assert blobs.fetchall() == [(0,)]
