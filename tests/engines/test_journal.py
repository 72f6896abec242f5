"""One event a change, in the change's transaction; content beside it, and gone with the memory."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any, cast

import pytest

from databases import Database
from langgraph_navin.audit import AuditEvent
from langgraph_navin.drive import run
from langgraph_navin.effects import dispatch
from langgraph_navin.errors import Conflict, PolicyDenied
from langgraph_navin.items import level
from langgraph_navin.operations import Forget, ForgetItem
from langgraph_navin.testing.bench import NOTES, Bench, Perform, rewrite, write

SECRET = "pineapple"
#: The columns that a seal will cover: who, what, which, allowed, and commitments.
CHAINED = "tenant_id, seq, xid, at, partition, actor, agent_id, op, allowed, rule, policy_version, trace, item_id, version, digest"


@pytest.fixture
def bench(migrated18: Database) -> Bench:
    engine = migrated18.engine
    return Bench(engine, cast(Perform, lambda plan: run(dispatch(engine, plan)))).as_caller(trace="00-trace", policy_version=7, actor="a-1")


def events(database: Database, bench: Bench) -> list[tuple[Any, ...]]:
    return database.rows("select op, allowed, rule, version from navin.journal where tenant_id = %s order by seq", bench.tenant)


def test_every_change_is_one_event(migrated18: Database, bench: Bench) -> None:
    first = bench.remember("a")
    bench.remember("a")
    bench.one(rewrite(first.id, {"n": 3}))
    bench.ask(write("b"), write("c"), Forget(NOTES, "a"))
    bench.forget("nothing there")
    assert sorted(events(migrated18, bench)[:3], key=lambda event: event[3]) == [
        ("remember", True, None, 1),
        ("update", True, None, 2),
        ("update", True, None, 3),
    ]
    assert sorted(events(migrated18, bench)[3:]) == [("forget", True, None, 3), ("remember", True, None, 1), ("remember", True, None, 1)]


def test_an_event_says_who_where_and_under_which_policy(migrated18: Database, bench: Bench) -> None:
    stored = bench.remember()
    found = migrated18.rows(
        "select actor, agent_id, policy_version, trace, partition, item_id::text from navin.journal where tenant_id = %s", bench.tenant
    )
    assert found == [("a-1", "agent", 7, "00-trace", "user:u-1", stored.id)]


def test_reads_leave_no_event(migrated18: Database, bench: Bench) -> None:
    stored = bench.remember(ttl=3600.0)
    bench.get(refresh=True)
    bench.listed(refresh=True)
    bench.by_id(stored.id)
    assert len(events(migrated18, bench)) == 1


def test_a_refusal_of_the_policy_is_an_event_of_its_own(migrated18: Database, bench: Bench) -> None:
    bench.perform(bench.engine.refuse(bench.access, [AuditEvent("remember", "write_scopes", ("team",)), AuditEvent("get", "modes")]))
    assert events(migrated18, bench) == [("remember", False, "write_scopes", None), ("get", False, "modes", None)]


def test_a_refusal_by_what_stands_there_keeps_its_event_and_nothing_else(migrated18: Database, bench: Bench) -> None:
    bench.remember("high", classification="confidential")
    with pytest.raises(Conflict):
        bench.ask(write("new"), write("high", expected_version=9))
    with pytest.raises(PolicyDenied):
        bench.as_caller(ceiling=level("internal")).ask(write("new"), write("high"))
    assert events(migrated18, bench)[1:] == [("write", False, "expected_version", None), ("write", False, "max_classification", None)]
    assert bench.get("new") is None


def test_history_keeps_the_old_value_and_when_it_was_valid(migrated18: Database, bench: Bench) -> None:
    first = bench.remember(value={"n": 1})
    second = bench.remember(value={"n": 2})
    found = migrated18.rows(
        "select old_value, valid_from, at >= valid_from, version from navin.journal where tenant_id = %s order by version", bench.tenant
    )
    assert found == [(None, None, None, 1), ({"n": 1}, first.updated_at, True, 2)]
    assert second.updated_at > first.updated_at


def test_a_digest_commits_to_the_value_with_a_salt(migrated18: Database, bench: Bench) -> None:
    bench.remember(value={"text": SECRET})
    salt, digest, text = migrated18.rows(
        "select j.salt, j.digest, i.value::text from navin.journal j join navin.items i using (tenant_id) where j.tenant_id = %s",
        bench.tenant,
    )[0]
    assert digest == hashlib.sha256(salt + text.encode()).digest()


@pytest.mark.parametrize("way", ["by key", "by id", "by expiry", "by writing over an expired one"])
def test_what_is_forgotten_leaves_no_content(migrated18: Database, bench: Bench, way: str) -> None:
    for _ in range(3):
        stored = bench.remember(value={"text": SECRET}, ttl=3600.0)
    expire = "update navin.items set expires_at = clock_timestamp() where tenant_id = %s"
    if way == "by key":
        bench.forget()
    elif way == "by id":
        bench.one(ForgetItem(stored.id))
    elif way == "by expiry":
        migrated18.rows(expire, bench.tenant)
        bench.perform(migrated18.engine.sweep())
    else:
        migrated18.rows(expire, bench.tenant)
        bench.remember(value={"text": "other"})
    left = migrated18.rows(
        "select old_value, salt from navin.journal where tenant_id = %s and item_id = %s and (old_value is not null or salt is not null)",
        *(bench.tenant, uuid.UUID(stored.id)),
    )
    assert left == []
    assert ("expire" if "expir" in way else "forget") in [op for op, *_ in events(migrated18, bench)]


def test_forgetting_one_memory_leaves_the_history_of_others(migrated18: Database, bench: Bench) -> None:
    for key in ("a", "b"):
        bench.remember(key, {"n": 1})
        bench.remember(key, {"n": 2})
    bench.forget("a")
    kept = migrated18.rows("select old_value from navin.journal where tenant_id = %s and old_value is not null", bench.tenant)
    assert kept == [({"n": 1},)]


def test_no_content_key_or_namespace_stands_in_the_chained_columns(migrated18: Database, bench: Bench) -> None:
    namespace = ("user", "u-1", f"{SECRET}-label")
    stored = bench.remember(f"{SECRET}-key", {"text": SECRET}, namespace=namespace, source={"said": SECRET})
    bench.one(rewrite(stored.id, {"text": f"{SECRET} again"}))
    bench.forget(f"{SECRET}-key", namespace=namespace)
    rows = migrated18.rows("select to_jsonb(x) - 'old_value' - 'salt' from navin.journal x where tenant_id = %s", bench.tenant)
    assert len(rows) == 3
    assert set(rows[0][0]) == {*CHAINED.split(", "), "valid_from"}
    assert SECRET not in json.dumps(rows)


def test_a_failed_batch_leaves_no_event(migrated18: Database, bench: Bench) -> None:
    stored = bench.remember("a")
    with pytest.raises(Conflict, match="23505"):
        bench.ask(write("b", item_id=stored.id))
    assert len(events(migrated18, bench)) == 1


def test_a_receipt_names_only_what_is_gone_at_once(migrated18: Database, bench: Bench) -> None:
    bench.remember("a", {"text": "submarine"})
    receipt = bench.forget("a")
    assert receipt.erased_from == ("items", "history", "vectors")
    # Its lexemes stand in the index until the next compaction: a receipt that named it would be wrong.
    assert migrated18.value("select count(*) from navin.pending where tenant_id = %s and idx ? 'submarine'", bench.tenant) == 1
