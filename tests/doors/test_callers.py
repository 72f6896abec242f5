"""Callers at the door: who is believed, and whose partition an operation lands in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from databases import Database
from langgraph_navin import Caller, InvalidRequest, Navin, PolicyDenied, Unsupported, acting_as

ALICE, BOB = (Caller("t", user_id=name, session_id="1") for name in ("alice", "bob"))


@pytest.fixture
def navin(door_database: Database, tenant: str) -> Iterator[Navin]:
    with Navin.open(door_database.dsn, tenant=tenant, require_caller=True) as navin:
        yield navin


def of(caller: Caller, tenant: str) -> Caller:
    return Caller(tenant, user_id=caller.user_id, session_id=caller.session_id)


def test_an_unverified_caller_is_none(navin: Navin, tenant: str) -> None:
    application = Caller(tenant, user_id="alice", verified=False)
    with pytest.raises(InvalidRequest, match="verified"):
        navin.store.bound(application)
    with pytest.raises(InvalidRequest, match="verified"), acting_as(application):
        raise AssertionError("entered")


def test_the_same_thread_id_of_another_owner_is_another_thread(navin: Navin, tenant: str) -> None:
    alice, bob = (navin.store.bound(of(caller, tenant)) for caller in (ALICE, BOB))
    alice.put(("session", "1"), "k", {"text": "of alice"})
    assert bob.get(("session", "1"), "k") is None
    assert bob.search(("session", "1"), query="alice") == []
    bob.put(("session", "1"), "k", {"text": "of bob"})
    found = alice.get(("session", "1"), "k")
    assert found is not None
    assert found.value == {"text": "of alice"}
    with pytest.raises(PolicyDenied, match="session_partition"):
        alice.get(("session", "2"), "k")
    # Nor does the stored form of somebody's session open it.
    with pytest.raises(PolicyDenied, match="session_partition"):
        bob.get(("session", str(of(ALICE, tenant).session_key)), "k")


def test_an_unmapped_namespace_is_the_callers_own(navin: Navin, tenant: str) -> None:
    alice, bob = (navin.store.bound(of(caller, tenant)) for caller in (ALICE, BOB))
    alice.put(("notes",), "k", {"text": "of alice"})
    assert bob.get(("notes",), "k") is None
    assert alice.list_namespaces() == [("notes",)]
    assert bob.list_namespaces() == []
    with pytest.raises(PolicyDenied, match="needs a caller with a user"):
        navin.store.bound(Caller(tenant, agent_id="a")).get(("notes",), "k")


def test_sessions_are_refused_where_they_would_not_be_separated(navin: Navin) -> None:
    with pytest.raises(Unsupported, match="aren't separated by caller"):
        _ = navin.checkpointer


def test_an_admin_without_a_database_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="admin_dsn: needs dsn"):
        Navin.open(admin_dsn="postgresql://owner@localhost/x")
