"""The database's schema: numbered files, applied once each under a lock, recorded with a checksum in the same transaction.

Two series: `core`, which any PostgreSQL 15 takes, and `vectors`, where the server has pgvector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import LiteralString

import psycopg
from psycopg import errors as pg
from psycopg.sql import SQL, Identifier

from ...capabilities import Isolation
from ...errors import EngineUnavailable, NavinError
from .connections import Sync, no_answer, waiting
from .faults import Scrubbed, mapped

#: The oldest server that has what the SQL uses.
OLDEST = 150000
#: One migration at a time in a database; the number is ours alone.
_LOCK = 0x6E6176696E

#: Where the files of each series are.
_FOLDERS = {"core": "migrations", "vectors": "vectors"}

_BOOK: LiteralString = """
create schema if not exists navin;
create table if not exists navin.migrations (
  series text not null, number int not null, name text not null, checksum text not null, applied_at timestamptz not null default now(),
  primary key (series, number));
grant usage on schema navin to public;
grant select on navin.migrations to public;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    series: str
    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class State:
    """What a database holds of ours."""

    #: Highest number applied, by series.
    applied: dict[str, int]
    #: The schema pgvector is installed in, None without it.
    vector_schema: str | None

    @property
    def current(self) -> bool:
        due = _newest("core") > self.applied.get("core", 0)
        return not due and (self.vector_schema is None or self.applied.get("vectors", 0) >= _newest("vectors"))

    @property
    def has_vectors(self) -> bool:
        return self.vector_schema is not None and "vectors" in self.applied


def migrations(series: str) -> list[Migration]:
    """The files of a series, in order."""
    folder = files(__package__).joinpath("sql", _FOLDERS[series])
    found = [f for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(
        (Migration(series, int(f.name.partition("_")[0]), f.name, f.read_text(encoding="utf-8")) for f in found), key=lambda m: m.number
    )


def _newest(series: str) -> int:
    return migrations(series)[-1].number


def read(connection: Sync) -> State:
    """What this database holds. Raises `EngineUnavailable` for an old server or a schema from a newer package."""
    _check_server(connection)
    there = connection.execute("select to_regclass('navin.migrations') is not null").fetchone()
    order = "select series, number, checksum from navin.migrations order by 1, 2"
    rows = connection.execute(order).fetchall() if there and there[0] else []
    known = {(m.series, m.number): m for series in _FOLDERS for m in migrations(series)}
    for series, number, checksum in rows:
        if (series, number) not in known:
            raise EngineUnavailable(
                f"this database was migrated by a newer langgraph-navin ({series} {number}): upgrade the package; nothing was changed"
            )
        _same(known[series, number], checksum)
    return State({str(series): int(number) for series, number, _ in rows}, _vector_schema(connection))


def _same(migration: Migration, checksum: str) -> None:
    if checksum != migration.checksum:
        raise EngineUnavailable(
            f"migration {migration.series} {migration.name} was applied to this database with another text: "
            "use the package that made it, or a new database; nothing was changed"
        )


def found(connection: Sync) -> State:
    """As `read`, with PostgreSQL's own errors in our words."""
    try:
        return read(connection)
    except psycopg.Error as error:
        failed = error
    raise _refused(failed)


def _check_server(connection: Sync) -> None:
    version = connection.info.server_version
    if version < OLDEST:
        raise EngineUnavailable(f"PostgreSQL {OLDEST // 10000} or newer is needed, this server is {version // 10000}.{version % 10000}")


def _vector_schema(connection: Sync) -> str | None:
    row = connection.execute(
        "select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
    ).fetchone()
    return str(row[0]) if row else None


def migrate(dsn: str) -> State:
    """Bring a database to this package's schema; safe to call at once from many processes, and again.

    Raises:
        EngineUnavailable: the server doesn't answer, is too old, was migrated by a newer package, or the role may not do it.
        InvalidRequest: the DSN can't be read.
    """
    try:
        connection = psycopg.connect(dsn, autocommit=True, application_name="navin setup", prepare_threshold=None, **waiting(dsn))
    except psycopg.Error as error:
        failed = error
    else:
        return _carried_out(connection)
    # Outside the handler: psycopg's own text quotes the DSN and must not stay in the error's context.
    raise no_answer(failed) from Scrubbed(failed)


def _carried_out(connection: Sync) -> State:
    with connection:
        try:
            return _migrated(connection)
        except psycopg.Error as error:
            failed = error
        raise _refused(failed)


def _migrated(connection: Sync) -> State:
    state = read(connection)
    if state.current and "core" in state.applied:
        return state
    _create_vector_extension(connection)
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        # Reading a table takes notice of what others did while this one waited; `create … if not exists` alone doesn't.
        connection.execute("select from pg_namespace limit 1")
        connection.execute(_BOOK)
        for migration in _due(connection):
            _apply(connection, migration)
    return read(connection)


def _due(connection: Sync) -> Iterator[Migration]:
    # Read under the lock: whoever waited for it finds the work done.
    known = {(s, n): c for s, n, c in connection.execute("select series, number, checksum from navin.migrations").fetchall()}
    series = ["core", *(["vectors"] if _vector_schema(connection) else [])]
    for migration in (m for s in series for m in migrations(s)):
        there = known.get((migration.series, migration.number))
        if there is None:
            yield migration
        else:
            _same(migration, there)


def _apply(connection: Sync, migration: Migration) -> None:
    text = SQL(migration.text)
    schema = _vector_schema(connection) if migration.series == "vectors" else None
    connection.execute(text.format(vector=Identifier(schema)) if schema else text)
    connection.execute(
        "insert into navin.migrations (series, number, name, checksum) values (%s, %s, %s, %s)",
        (migration.series, migration.number, migration.name, migration.checksum),
    )


def _create_vector_extension(connection: Sync) -> None:
    available = connection.execute("select from pg_available_extensions where name = 'vector'").fetchone()
    if available is None or _vector_schema(connection) is not None:
        return
    try:
        connection.execute("create extension if not exists vector")
    except (pg.InsufficientPrivilege, pg.UniqueViolation, pg.DuplicateObject):
        # Another process made it at this moment, or this role may not: then everything but vectors works.
        return


def _refused(error: psycopg.Error) -> NavinError:
    if isinstance(error, pg.InsufficientPrivilege):
        refusal = EngineUnavailable(
            "this role may not create Navin's schema and roles: pass admin_dsn with an owner's role, or have a database administrator "
            "run `navin setup`; nothing was changed"
        )
        refusal.__cause__ = Scrubbed(error)
        return refusal
    found = mapped(error, sent=False)
    assert isinstance(found, NavinError)
    return found


def share_checkpoints(connection: Sync) -> None:
    """Let the application role use LangGraph's tables, which belong to whoever made them."""
    connection.execute("""
        grant select, insert, update, delete on checkpoints, checkpoint_blobs, checkpoint_writes to navin_app;
        grant select on checkpoint_migrations to navin_app""")


def isolation(connection: Sync) -> Isolation:
    """`enforced` where rows are really separated by the server: the application role owns nothing and bypasses nothing."""
    row = connection.execute("""
        select not (r.rolsuper or r.rolbypassrls)
          and not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'navin' and c.relkind = 'r' and c.relname <> 'migrations'
              and (not c.relrowsecurity or not c.relforcerowsecurity or pg_has_role('navin_app', c.relowner, 'member')))
        from pg_roles r where r.rolname = 'navin_app'
        """).fetchone()
    return "enforced" if row and row[0] else "logical"


def may_maintain(connection: Sync) -> bool:
    """Whether this login may act as the maintenance role."""
    # From PostgreSQL 16 on, a member may be one without the right to `set role`.
    right = "set" if connection.info.server_version >= 160000 else "member"
    row = connection.execute("select pg_has_role(current_user, 'navin_maintenance', %s)", (right,)).fetchone()
    return bool(row and row[0])
