"""LangGraph's own conformance suite: ours passes what LangGraph's PostgreSQL saver passes, in both colours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from langgraph_navin.saver import NavinSaver
from saver_subjects import Dialled, fresh_database

CAPABILITIES = {"put", "put_writes", "get_tuple", "list", "delete_thread", "prune"}


class InSync(BaseCheckpointSaver[str]):
    """Answers the suite's async calls with a saver's sync methods."""

    def __init__(self, saver: NavinSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.saver.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **how: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.saver.list(config, **how):
            yield found

    async def aput(self, config: RunnableConfig, held: Checkpoint, about: CheckpointMetadata, versions: ChannelVersions) -> RunnableConfig:
        return self.saver.put(config, held, about, versions)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.saver.prune(thread_ids, strategy=strategy)

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self.saver.get_next_version(current, channel)


@pytest.fixture
def dsn(server_dsn: str) -> Iterator[str]:
    with fresh_database(server_dsn) as fresh:
        NavinSaver(Dialled(fresh)).setup()
        yield fresh


def empty(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")


async def results(name: str, dsn: str) -> dict[str, tuple[int, int]]:
    """Passed and failed tests of each capability that the suite found."""

    @checkpointer_test(name=name)
    async def saver() -> AsyncIterator[BaseCheckpointSaver[str]]:
        empty(dsn)
        if name == "peer":
            async with AsyncPostgresSaver.from_conn_string(dsn) as peer:
                yield peer
        else:
            ours = NavinSaver(Dialled(dsn))
            yield InSync(ours) if name == "sync" else ours

    report = await validate(saver)
    return {name: (found.tests_passed, found.tests_failed) for name, found in report.results.items() if found.detected}


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_it_passes_every_test_that_langgraphs_own_saver_passes(colour: str, dsn: str) -> None:
    ours, peer = await results(colour, dsn), await results("peer", dsn)
    assert set(ours) == CAPABILITIES
    assert ours == peer
    assert all(passed > 0 and failed == 0 for passed, failed in ours.values())
