"""Who may do what: logins without rights, application logins beside an owner, owners without superuser rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from databases import Database, fresh
from langgraph_navin import EngineUnavailable, Navin
from langgraph_navin.engines.builtin import schema


class Roles:
    """Login roles of a server, dropped at the end."""

    def __init__(self, stack: ExitStack, server: str, database: Database) -> None:
        self._stack, self._server, self._database = stack, server, database

    def make(self, name: str, rights: LiteralString = "") -> str:
        """A DSN of the test's database for a new role."""
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(SQL("create role {} login password {} ").format(Identifier(name), Literal("pw-" + name)) + SQL(rights))
        self._stack.callback(self._drop, name)
        return make_conninfo(self._database.dsn, user=name, password="pw-" + name)

    def _drop(self, name: str) -> None:
        for dsn in (self._database.dsn, self._server):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(SQL("reassign owned by {} to current_user").format(Identifier(name)))
                connection.execute(SQL("drop owned by {}").format(Identifier(name)))
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(SQL("drop role {}").format(Identifier(name)))


@pytest.fixture(params=["pg16", "pg18"])
def ruled(request: pytest.FixtureRequest) -> Iterator[tuple[Database, Roles]]:
    server = request.getfixturevalue(request.param)
    with fresh(server) as database, ExitStack() as stack:
        yield database, Roles(stack, server, database)


def used(navin: Navin) -> None:
    """Every part of the engine, once."""
    store = navin.store
    store.put(("user", "a"), "k", {"text": "green tea"}, ttl=60)
    store.put(("user", "a"), "gone", {"text": "tea"})
    store.delete(("user", "a"), "gone")
    assert [item.key for item in store.search(("user", "a"), query="tea")] == ["k"]
    assert store.list_namespaces() == [("user", "a")]
    assert list(navin.checkpointer.list({"configurable": {"thread_id": "t"}})) == []


def test_a_role_without_rights_is_told_of_admin_dsn(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    weak = roles.make("weak")
    with pytest.raises(EngineUnavailable, match=r"pass admin_dsn .* nothing was changed") as refused:
        Navin.open(weak)
    assert "pw-" not in json.dumps([str(refused.value), repr(refused.value.__cause__)])
    assert database.value("select to_regnamespace('navin') is null")


def test_a_login_that_is_only_the_application_works_beside_an_owner(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    app = roles.make("app_login")
    schema.migrate(database.dsn)
    database.rows("grant navin_app to app_login")
    with Navin.open(app, admin_dsn=database.dsn) as navin:
        used(navin)
        assert navin.maintenance.running
        navin.maintenance.tick()
    with Navin.open(app) as navin:
        navin.store.put(("user", "a"), "more", {})
        assert not navin.maintenance.running


def owned(database: Database, owner: LiteralString) -> None:
    """Make a role the database's owner, as on managed PostgreSQL; the public schema belongs to it."""
    name = database.value("select current_database()")
    database.rows(SQL("alter database {} owner to {}").format(Identifier(name), Identifier(owner)))


def test_an_owner_who_may_create_roles_migrates_and_serves(bare: str) -> None:
    with fresh(bare) as database, ExitStack() as stack:
        database.rows("drop role if exists navin_app, navin_maintenance")
        owner = Roles(stack, bare, database).make("owner_login", "createrole")
        owned(database, "owner_login")
        with Navin.open(owner) as navin:
            used(navin)
            navin.maintenance.tick()
        assert database.value("select tableowner from pg_tables where schemaname = 'navin' and tablename = 'items'") == "owner_login"


@pytest.mark.usefixtures("migrated16", "migrated18")
def test_an_owner_who_was_given_the_roles_needs_no_right_to_create_them(ruled: tuple[Database, Roles]) -> None:
    database, roles = ruled
    owner = roles.make("owner_login")
    owned(database, "owner_login")
    database.rows("grant navin_app, navin_maintenance to owner_login")
    with Navin.open(owner) as navin:
        used(navin)
        navin.maintenance.tick()
