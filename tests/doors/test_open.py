"""`Navin.open()` and `from_conn_string`: every way in, and what stands there afterwards."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from langgraph_navin import Caller, CallerUnknown, InvalidRequest, Navin, NavinStore, PolicyDenied, Unsupported, acting_as, cli
from langgraph_navin.operations import ForgetItem, GetItem, Update
from servers import ground, server

NS = ("user", "u-1", "notes")


@pytest.fixture(scope="module")
def server_dsn() -> Iterator[str]:
    with server(18) as dsn:
        yield dsn


@pytest.fixture
def dsn(server_dsn: str) -> str:
    """A new, empty database."""
    name = f"open_{uuid.uuid4().hex}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(SQL("create database {}").format(Identifier(name)))
    return make_conninfo(server_dsn, dbname=name)


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {
            f"{s}.{t}" for s, t in connection.execute("select schemaname, tablename from pg_tables where schemaname in ('navin', 'public')")
        }


def test_with(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        navin.store.put(NS, "k", {"x": 1})
    with Navin.open(dsn) as navin:
        found = navin.store.get(NS, "k")
        assert found is not None
        assert found.value == {"x": 1}


async def test_async_with(dsn: str) -> None:
    async with Navin.open(dsn) as navin:
        await navin.store.aput(NS, "k", {"x": 1})
        found = await navin.store.aget(NS, "k")
        assert found is not None
        assert navin.store.get(NS, "k") == found


def test_module_level_without_any_with(dsn: str) -> None:
    code = "import sys; from langgraph_navin import Navin; navin = Navin.open(sys.argv[1]); "
    code += "navin.store.put(('a',), 'k', {'x': 1}); print('put')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, dsn], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("put\n", "")


def test_embedded_server_ends_with_its_last_user() -> None:
    with ground() as place:
        first = Navin.open(data_dir=place / "navin")
        second = Navin.open(data_dir=place / "navin")
        first.store.put(NS, "k", {"x": 1})
        first.close()
        assert second.store.get(NS, "k") is not None
        second.close()
        second.close()
        with Navin.open(data_dir=place / "navin") as again:
            assert again.store.get(NS, "k") is not None


def test_a_closed_navin_says_so(dsn: str) -> None:
    navin = Navin.open(dsn)
    navin.close()
    with pytest.raises(RuntimeError, match="closed; open it again"):
        navin.store.get(NS, "k")


def test_langgraphs_tables_are_made_only_for_sessions(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        assert not any("checkpoint" in table for table in tables(dsn))
        assert navin.checkpointer is navin.checkpointer
        assert "public.checkpoints" in tables(dsn)


def test_a_graph_with_both(dsn: str) -> None:
    def node(state: MessagesState) -> dict[str, list[tuple[str, str]]]:
        return {"messages": [("ai", f"turn {len(state['messages'])}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    asked = [MessagesState(messages=[HumanMessage(text)]) for text in ("one", "two")]
    with Navin.open(dsn) as navin:
        graph = builder.compile(store=navin.store, checkpointer=navin.checkpointer)
        graph.invoke(asked[0], thread)
        last = asyncio.run(graph.ainvoke(asked[1], thread))
    assert [message.content for message in last["messages"]] == ["one", "turn 1", "two", "turn 3"]


def test_from_conn_string_needs_setup_once(dsn: str) -> None:
    with NavinStore.from_conn_string(dsn, ttl={"default_ttl": 5}) as store:
        with pytest.raises(RuntimeError, match="setup"):
            store.put(NS, "k", {"x": 1})
        store.setup()
        store.setup()
        store.put(NS, "k", {"x": 1})
        assert store.sweep_ttl() == 0
        assert store.stop_ttl_sweeper(5)
        store.start_ttl_sweeper(1)


async def test_from_conn_string_async(dsn: str) -> None:
    async with NavinStore.from_conn_string(dsn) as store:
        await store.asetup()
        await store.aput(NS, "k", {"x": 1})
        assert [item.key for item in await store.asearch(())] == ["k"]


def test_swept_items_are_gone_from_the_tables(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        navin.store.put(NS, "k", {"text": "soon gone"}, ttl=60)
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("update navin.items set expires_at = now() - interval '1 s'")
            assert navin.store.get(NS, "k") is None
            assert navin.store.sweep_ttl() == 1
            navin.maintenance.tick()
            counts = [
                admin.execute(SQL("select count(*) from navin.{}").format(Identifier(t))).fetchone() for t in ("items", "pending", "dead")
            ]
        assert counts == [(0,)] * 3


def test_agents_of_one_navin_share_the_tenant(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        navin.agent("researcher").store.put(NS, "k", {"x": 1})
        assert navin.store.get(NS, "k") is not None
        assert navin.agent("researcher").checkpointer is navin.checkpointer


def test_tenants_see_nothing_of_each_other(dsn: str) -> None:
    with Navin.open(dsn, tenant="a") as a, Navin.open(dsn, tenant="b") as b:
        a.store.put(NS, "k", {"text": "of tenant a"})
        assert b.store.get(NS, "k") is None
        assert b.store.search(()) == []
        assert b.store.search((), query="tenant") == []
        assert b.store.list_namespaces() == []


def test_verified_callers(dsn: str) -> None:
    with Navin.open(dsn, require_caller=True) as navin:
        with pytest.raises(CallerUnknown, match="acting_as"):
            navin.store.get(NS, "k")
        alice, bob = (Caller(tenant_id="t", user_id=name) for name in ("alice", "bob"))
        navin.store.bound(alice).put(("user", "alice"), "k", {"text": "mine"})
        with acting_as(bob):
            with pytest.raises(PolicyDenied, match="user_partition"):
                navin.store.get(("user", "alice"), "k")
            assert navin.store.search(()) == []
            assert navin.store.list_namespaces() == []
            with pytest.raises(CallerUnknown, match="disagree"):
                navin.store.bound(alice).get(("user", "alice"), "k")


def test_operations_by_id(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        navin.store.put(NS, "k", {"x": 1})
        with psycopg.connect(dsn) as admin:
            row = admin.execute("select id::text from navin.items").fetchone()
        assert row is not None
        (item_id,) = row
        navin.perform(Update(item_id, b'{"x": 2}', {"x": 2}))
        item = asyncio.run(navin.aperform(GetItem(item_id)))
        assert (item.value, item.version) == ({"x": 2}, 2)  # type: ignore[union-attr]
        with pytest.raises(RuntimeError, match="expected version"):
            navin.perform(Update(item_id, b'{"x": 3}', {"x": 3}, expected_version=1))
        assert navin.perform(ForgetItem(item_id)).found  # type: ignore[union-attr]
        with pytest.raises(LookupError):
            navin.perform(ForgetItem(item_id))


def test_capabilities_and_health(dsn: str) -> None:
    with Navin.open(dsn) as navin:
        told = navin.capabilities()
        assert (told["provider"], told["isolation"], told["session_memory"], told["knowledge"]) == ("builtin", "enforced", True, [])
        assert navin.health() == {"engine": "builtin", "status": "ok"}


@pytest.mark.parametrize(
    "rule",
    [
        {"engine": "mem0"},
        {"allow_personal_data": False},
        {"retention_days": 3},
        {"legal_hold": True},
        {"shared_with": ["x"]},
        {"infer": True},
    ],
)
def test_rules_that_are_not_kept_yet_are_refused(dsn: str, rule: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match=f"policy.{next(iter(rule))}"):
        Navin.open(dsn, policy=rule)


def test_namespace_rules_and_dots(dsn: str) -> None:
    rules = [(("memories", "{user_id}"), "user")]
    with Navin.open(dsn, require_caller=True, namespaces=rules, labels="any") as navin:
        store = navin.store.bound(Caller(tenant_id="t", user_id="ann@example.org"))
        store.put(("memories", "ann@example.org", "notes"), "k", {"x": 1})
        assert store.list_namespaces() == [("memories", "ann@example.org", "notes")]
        with pytest.raises(PolicyDenied):
            store.get(("memories", "bob@example.org", "notes"), "k")


def test_checkpoints_elsewhere_are_refused_clearly(dsn: str) -> None:
    with Navin.open(dsn, checkpoints="redis://localhost") as navin, pytest.raises(InvalidRequest, match="checkpoints"):
        _ = navin.checkpointer


def test_the_command_line(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "navin.toml"
    config.write_text(f'dsn = "{dsn}"\ntenant = "cli"\n')
    monkeypatch.setenv("NAVIN_CONFIG", str(config))
    maintained = {"swept": 0, "compacted": 0, "settled": 0, "indexed": 0, "unindexed": 0}
    for command, told in (("setup", {"schema": "current", "isolation": "enforced"}), ("maintain", maintained)):
        assert cli.main([command]) == 0
        assert json.loads(capsys.readouterr().out) == told
    assert cli.main(["--config", str(config), "health"]) == 0
    monkeypatch.setenv("NAVIN_DSN", "host=/nowhere password=hunter2")
    assert cli.main(["health"]) == 1
    told_error = capsys.readouterr().err
    assert "memory_engine_unavailable" in told_error
    assert "hunter2" not in told_error


def test_repr_names_no_password(dsn: str) -> None:
    with Navin.open(f"{dsn} password=hunter2") as navin:
        assert "hunter2" not in repr(navin) + repr(navin.store) + repr(navin.__dict__["_settings"])
