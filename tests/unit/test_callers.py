"""Who acts: checked when it is made, one at a time, and never another thread's or task's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin.callers import Caller, acting_as, current
from langgraph_navin.errors import CallerUnknown, InvalidRequest
from langgraph_navin.scopes import SCOPES, TENANT_LIMIT, Partition

ADA = Caller("acme", user_id="ada", agent_id="helper", session_id="s-1", project_id="p-1", teams=frozenset({"red", "blue"}))
BOB = Caller("acme", user_id="bob")
APPLICATION = Caller("acme", agent_id="helper", verified=False)


def acting() -> Caller:
    return current(bound=None, application=None)


# --- what a caller may be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["tenant_id", "user_id", "agent_id", "session_id", "project_id", "request_id"])
@pytest.mark.parametrize("bad", ["", "a\x1fb", "a\x00b", "\ud800", 7, b"ada"], ids=repr)
def test_an_id_that_cannot_be_is_refused_by_its_name(field: str, bad: Any) -> None:
    with pytest.raises(InvalidRequest, match=field) as refused:
        Caller(**{"tenant_id": "acme", field: bad})
    assert refused.value.details["field"] == field


def test_a_tenant_is_required() -> None:
    with pytest.raises(InvalidRequest, match="tenant_id"):
        Caller(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_a_tenants_id_is_limited_in_bytes(letter: str) -> None:
    longest = letter * (TENANT_LIMIT // len(letter.encode()))
    assert Caller(longest).tenant_id == longest
    with pytest.raises(InvalidRequest, match=str(TENANT_LIMIT)):
        Caller(longest + letter)


@pytest.mark.parametrize("field", ["teams", "roles"])
@pytest.mark.parametrize("bad", ["red", 7, None, ["red", 7], [""], ["a\x1fb"], [None]], ids=repr)
def test_teams_and_roles_are_sets_of_texts(field: str, bad: Any) -> None:
    # A plain text would be taken apart into its letters.
    with pytest.raises(InvalidRequest, match=field):
        Caller("acme", **{field: bad})


def test_teams_may_come_in_any_collection() -> None:
    for given_as in (["red", "blue"], ("blue", "red"), {"red", "blue"}):
        assert Caller("acme", teams=given_as).teams == frozenset({"red", "blue"})  # type: ignore[arg-type]


def test_a_caller_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BOB.user_id = "ada"  # type: ignore[misc]


# --- what is a caller's own -------------------------------------------------------------------------------------


def test_a_callers_partitions_are_listed() -> None:
    assert {(p.scope, p.id) for p in ADA.partitions()} == {
        ("user", "ada"),
        ("session", ADA.session_key),
        ("agent", "helper"),
        ("shared_agents", "helper"),
        ("project", "p-1"),
        ("team", "red"),
        ("team", "blue"),
        ("organization", "acme"),
    }
    assert {(p.scope, p.id) for p in Caller("acme").partitions()} == {("organization", "acme")}


IDS = st.sampled_from(["a", "b", "c", "acme"])
CALLERS = st.builds(
    Caller,
    tenant_id=IDS,
    user_id=st.none() | IDS,
    agent_id=st.none() | IDS,
    session_id=st.none() | IDS,
    project_id=st.none() | IDS,
    teams=st.frozensets(IDS),
)


@given(CALLERS, st.builds(Partition, st.sampled_from(SCOPES), IDS))
def test_own_and_the_list_of_partitions_agree(caller: Caller, partition: Partition) -> None:
    assert caller.own(partition) is (partition in caller.partitions())


def test_nothing_global_is_anyones_own() -> None:
    assert not Caller("acme", user_id="ada", roles=frozenset({"platform_admin"})).own(Partition("global", "-"))


@pytest.mark.parametrize("ids", [{"user_id": "-"}, {"agent_id": "-"}, {"session_id": "-"}, {"teams": {"-"}}])
def test_nobody_is_no_member(ids: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="belongs to no member"):
        Caller("acme", **ids)


def test_a_user_and_an_agent_of_one_name_are_two() -> None:
    assert Caller("acme", user_id="x").pseudonym() != Caller("acme", agent_id="x").pseudonym()


# --- the pseudonym ----------------------------------------------------------------------------------------------


def test_a_pseudonym_is_stable_and_tells_neither_id_nor_tenant_across() -> None:
    assert ADA.pseudonym() == Caller("acme", user_id="ada", session_id="s-2").pseudonym()
    assert len({ADA.pseudonym(), BOB.pseudonym(), Caller("other", user_id="ada").pseudonym(), Caller("acme").pseudonym()}) == 4
    assert "ada" not in ADA.pseudonym()
    assert APPLICATION.pseudonym() == "application"


# --- acting_as --------------------------------------------------------------------------------------------------


def test_acting_as_nests_and_ends() -> None:
    with acting_as(ADA) as outer:
        assert outer is ADA
        with acting_as(BOB):
            assert acting() is BOB
        assert acting() is ADA
    with pytest.raises(CallerUnknown):
        acting()


def test_acting_as_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError), acting_as(ADA), acting_as(BOB):
        raise KeyError
    with pytest.raises(CallerUnknown):
        acting()


@pytest.mark.parametrize("bad", [None, "ada", {"user_id": "ada"}], ids=repr)
def test_acting_as_takes_a_caller_and_nothing_a_client_could_send(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match="Caller"), acting_as(bad):
        pytest.fail("nothing runs under such a caller")


# --- which one counts -------------------------------------------------------------------------------------------


def test_a_required_caller_that_is_missing_is_refused_and_told_of() -> None:
    with pytest.raises(CallerUnknown, match="acting_as") as refused:
        current(bound=None, application=None)
    assert refused.value.status == 401


def test_the_application_speaks_where_nobody_else_does() -> None:
    assert current(bound=None, application=APPLICATION) is APPLICATION
    assert current(bound=BOB, application=APPLICATION) is BOB
    with acting_as(ADA):
        assert current(bound=None, application=APPLICATION) is ADA


def test_two_sources_that_disagree_are_refused() -> None:
    with acting_as(ADA):
        assert current(bound=Caller(**{f: getattr(ADA, f) for f in ADA.__slots__}), application=None) == ADA
        with pytest.raises(CallerUnknown, match="disagree") as refused:
            current(bound=BOB, application=APPLICATION)
    assert "ada" not in str(refused.value)
    assert "bob" not in str(refused.value)


def test_a_caller_who_differs_in_one_thing_disagrees() -> None:
    with acting_as(ADA), pytest.raises(CallerUnknown):
        current(bound=Caller("acme", user_id="ada"), application=None)


# --- threads and tasks ------------------------------------------------------------------------------------------


async def test_tasks_side_by_side_keep_their_own_caller() -> None:
    entered = {"ada": asyncio.Event(), "bob": asyncio.Event()}

    async def work(caller: Caller, other: str) -> Caller:
        with acting_as(caller):
            entered[str(caller.user_id)].set()
            await entered[other].wait()
            return acting()

    assert list(await asyncio.gather(work(ADA, "bob"), work(BOB, "ada"))) == [ADA, BOB]
    with pytest.raises(CallerUnknown):
        acting()


async def test_a_task_keeps_the_caller_it_began_under() -> None:
    go = asyncio.Event()

    async def late() -> Caller:
        await go.wait()
        return acting()

    with acting_as(ADA):
        task = asyncio.create_task(late())
    with acting_as(BOB):
        go.set()
        assert await task is ADA


async def test_to_thread_takes_the_caller_along() -> None:
    with acting_as(ADA):
        assert await asyncio.to_thread(acting) is ADA


def test_threads_of_a_pool_serve_nobody_elses_caller() -> None:
    barrier = threading.Barrier(4)

    def work(caller: Caller) -> Caller:
        with acting_as(caller):
            barrier.wait(timeout=20)
            return acting()

    callers = [Caller("acme", user_id=f"u-{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, callers)) == callers
        with acting_as(ADA):
            # A bare thread has a context of its own: better nobody than the one who started it.
            left = pool.submit(acting)
            with pytest.raises(CallerUnknown):
                left.result()
