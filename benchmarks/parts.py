"""What each part of a get and of a put costs: the same row, read and written with one guarantee more at a time.

    get   the row alone · row-level security · the policy epoch · the function that the store calls · the store
    put   the row alone · row-level security · the journal · the function · the store · the words of the value

One client, one connection a step. Nobody waits for the disk in this part (`synchronous_commit` off), and the steps take turns
often: the parts are small beside a slow commit. What the store sends isn't written down here a second time: its plan is listened
to, and sent again by hand, so the steps stay true when the engine's SQL changes.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, LiteralString, NoReturn

import psycopg
from langgraph.store.base import GetOp, PutOp
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from frame import BARE, Report, Row, Run, Sample, compare, database, timed
from langgraph_navin import Caller, Navin
from langgraph_navin.engines.builtin.connections import Connections
from langgraph_navin.engines.builtin.engine import BuiltinEngine
from langgraph_navin.engines.builtin.rows import COLUMNS
from langgraph_navin.engines.builtin.session import configure
from langgraph_navin.engines.builtin.statements import Query, named
from langgraph_navin.items import new_id
from langgraph_navin.service import Service
from langgraph_navin.store import Identity, NavinStore
from shelves import Shelf, user

ROWS = 10_000
CALLS = 60
TURNS = 25

#: A step, and the one it is compared with: what lies between them is what the part costs.
GET = {
    "select": BARE,
    "+ row-level security": "select",
    "+ policy epoch": "+ row-level security",
    "+ function": "+ policy epoch",
    "NavinStore": "+ function",
}
PUT = {
    "insert": BARE,
    "+ row-level security": "insert",
    "+ journal": "+ row-level security",
    "+ function": "+ journal",
    "NavinStore": "+ function",
    "+ words, function": "+ function",
    "+ words, NavinStore": "NavinStore",
}

Job = Callable[[], Any]
Rows = list[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]


class _Heard(Exception):
    """The first effect of a plan; it goes no further."""

    def __init__(self, query: Query) -> None:
        self.query = query


class _Listening:
    """A session that performs nothing."""

    def perform(self, effect: Any) -> NoReturn:
        raise _Heard(effect)


class _Deaf(BuiltinEngine):
    """The builtin engine, whose plans are listened to instead of being carried out."""

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield _Listening()


class Listener:
    """Tells what the store would send for an operation."""

    def __init__(self, dsn: str) -> None:
        engine = _Deaf(Connections(dsn))
        self._store = NavinStore(Service(engine), Identity("default", Caller("default", agent_id="default", verified=False)))

    def sent(self, op: GetOp | PutOp) -> Query:
        try:
            self._store.batch([op])
        except _Heard as heard:
            return heard.query
        raise AssertionError("the store answered without asking its engine")


def send(connection: Connection, query: Query) -> Rows:
    """Send what was heard, as the engine's own session does."""
    if query.enter is None:
        return connection.execute(query.statement, query.params).fetchall()
    with connection.pipeline():
        connection.execute(named()["enter"], query.enter)
        cursor = connection.execute(query.statement, query.params)
    return cursor.fetchall()


_ROW = SQL("""select {columns} from navin.items i
  where i.tenant_id = %(tenant)s and i.partition = %(partition)s and i.ns = %(ns)s and i.key = %(key)s""").format(columns=COLUMNS)
_ROW_AND_EPOCH = SQL("""select e.stale, i.*
  from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale) e
  left join lateral ({row}) i on not e.stale""").format(row=_ROW)


class Bench:
    """One user's items in a database of ours, and three connections to it: a superuser's, the application role's, the store's."""

    def __init__(self, dsn: str, navin: Navin, rows: int, stack: ExitStack) -> None:
        self.store, self.shelf, self.listener = navin.store, Shelf(rows, index=False), Listener(dsn)
        for batch in self.shelf.filling(1_000):
            self.store.batch(batch)
        self.superuser, self.app, self.caller = (stack.enter_context(self._connected(dsn)) for _ in range(3))
        self._turns = itertools.count()
        sent = self.listener.sent(self.new())
        self.store.batch([self.new()])
        copies = Copies(self.superuser)
        self._enter_for_good(sent.params)
        self.insert = copies.insert

    def _connected(self, dsn: str) -> Connection:
        connection = psycopg.connect(dsn, autocommit=True)
        configure(connection)
        return connection

    def _enter_for_good(self, params: Mapping[str, Any]) -> None:
        # What the function sets for each transaction, here once for the session.
        for name, value in (("tenant", "tenant"), ("parts", "partition"), ("who", "who")):
            self.app.execute("select set_config(%s, %s, false)", (f"navin.{name}", params[value]))
        self.app.execute("set role navin_app")

    # --- what a call is about ---------------------------------------------------------------------------------

    def old(self) -> GetOp:
        mine = max(1, self.shelf.rows // self.shelf.users)
        op = self.shelf.row(next(self._turns) * 7 % mine * self.shelf.users)
        return GetOp(op.namespace, op.key)

    def new(self, index: Any = False) -> PutOp:
        return self.shelf.new()._replace(namespace=(*user(0), "notes-1"), index=index)

    # --- steps ------------------------------------------------------------------------------------------------

    def reads(self) -> dict[str, Sample]:
        return {
            "select": prepared(lambda: self._read(self.superuser, _ROW)),
            "+ row-level security": prepared(lambda: self._read(self.app, _ROW)),
            "+ policy epoch": prepared(lambda: self._read(self.app, _ROW_AND_EPOCH)),
            "+ function": prepared(lambda: partial(send, self.caller, self.listener.sent(self.old()))),
            "NavinStore": prepared(lambda: partial(self.store.batch, [self.old()])),
        }

    def _read(self, connection: Connection, statement: Composed) -> Job:
        params = self.listener.sent(self.old()).params
        return lambda: connection.execute(statement, params).fetchall()

    def writes(self) -> dict[str, Sample]:
        return {
            "insert": prepared(lambda: self._write(self.superuser, "plain")),
            "+ row-level security": prepared(lambda: self._write(self.app, "guarded")),
            "+ journal": prepared(lambda: self._write(self.app, "items")),
            "+ function": prepared(lambda: self._sent(False)),
            "NavinStore": prepared(lambda: partial(self.store.batch, [self.new()])),
            "+ words, function": prepared(lambda: self._sent(None)),
            "+ words, NavinStore": prepared(lambda: partial(self.store.batch, [self.new(None)])),
        }

    def _write(self, connection: Connection, table: str) -> Job:
        op = self.new()
        statement, params = self.insert[table]
        params = params | {"key": op.key, "id": new_id(), "value": json.dumps(op.value)}
        return lambda: connection.execute(statement, params)

    def _sent(self, index: Any) -> Job:
        return partial(send, self.caller, self.listener.sent(self.new(index)))


class Copies:
    """The items' table twice more, with the same columns, indexes and rows: `plain` alone, `guarded` with its row-level security."""

    def __init__(self, superuser: Connection) -> None:
        self._superuser = superuser
        columns = [name for (name,) in superuser.execute(_COLUMNS)]
        superuser.execute("create schema parts; grant usage on schema parts to navin_app")
        for name in ("plain", "guarded"):
            self._copy(Identifier("parts", name), columns)
        self._guard(Identifier("parts", "guarded"))
        superuser.execute("vacuum analyze")
        tables = {"plain": Identifier("parts", "plain"), "guarded": Identifier("parts", "guarded"), "items": Identifier("navin", "items")}
        example = self._example(columns)
        #: By table, a statement that inserts one row, and its values.
        self.insert: dict[str, tuple[Composed, dict[str, Any]]] = {
            name: (_insert(table, columns), example) for name, table in tables.items()
        }

    def _copy(self, table: Identifier, columns: Sequence[str]) -> None:
        names = _names(columns)
        self._superuser.execute(SQL("create table {} (like navin.items including all)").format(table))
        self._superuser.execute(SQL("insert into {} ({}) select {} from navin.items").format(table, names, names))

    def _guard(self, table: Identifier) -> None:
        self._superuser.execute(SQL("alter table {} enable row level security, force row level security").format(table))
        self._superuser.execute(SQL("grant select, insert, update, delete on {} to navin_app").format(table))
        for name, command, using, check in self._superuser.execute(_POLICIES).fetchall():
            parts = [SQL("create policy {} on {} for {} to navin_app").format(Identifier(name), table, _own(command))]
            parts += [SQL("using ({})").format(_own(using))] if using else []
            parts += [SQL("with check ({})").format(_own(check))] if check else []
            self._superuser.execute(SQL(" ").join(parts))

    def _example(self, columns: Sequence[str]) -> dict[str, Any]:
        """One user's newest row, every column as text."""
        texts = SQL(", ").join(SQL("{}::text").format(Identifier(name)) for name in columns)
        statement = SQL("select {} from navin.items order by updated_at desc limit 1").format(texts)
        (row,) = self._superuser.execute(statement).fetchall()
        return dict(zip(columns, row, strict=True))


_COLUMNS = """select attname from pg_attribute where attrelid = 'navin.items'::regclass and attnum > 0 and not attisdropped
  and attgenerated = '' order by attnum"""
_POLICIES = """select policyname, cmd, qual, with_check from pg_policies
  where schemaname = 'navin' and tablename = 'items' and 'navin_app' = any (roles)"""


def _own(text: LiteralString) -> SQL:
    """The server's own words for what the migrations made."""
    return SQL(text)


def _names(columns: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))


def _insert(table: Identifier, columns: Sequence[str]) -> Composed:
    values = [SQL("nextval('navin.vid')") if name == "vid" else Placeholder(name) for name in columns]
    return SQL("insert into {} ({}) values ({})").format(table, _names(columns), SQL(", ").join(values))


def prepared(job: Callable[[], Job]) -> Sample:
    """A sample whose calls are made ready before the first of them is timed."""

    def sample(calls: int) -> Run:
        jobs = [job() for _ in range(calls)]
        return timed(lambda n: jobs[n]())(calls)

    return sample


def costs(rows: Sequence[Row], steps: Mapping[str, str]) -> dict[str, int]:
    """By step, the microseconds that it takes beyond the one it is compared with."""
    medians = {row.subject: row.median_ms for row in rows}
    return {step: round(1000 * (medians[step] - medians[base])) for step, base in steps.items()}


def take_apart(report: Report, dsn: str, args: argparse.Namespace) -> None:
    """Measure the steps of a get and of a put, and keep what each part costs as facts."""
    with ExitStack() as stack:
        place = stack.enter_context(database(dsn))
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(SQL("alter database {} set synchronous_commit = off").format(Identifier(connection.info.dbname)))
        bench = Bench(place, stack.enter_context(Navin.open(place)), min(args.rows, ROWS), stack)
        for operation, samples, steps in (("get", bench.reads(), GET), ("put", bench.writes(), PUT)):
            if args.operation not in (None, operation):
                continue
            compare(report, operation, samples, calls=10 if args.quick else CALLS, runs=2 if args.quick else TURNS, config="parts")
            taken = costs([row for row in report.rows if (row.config, row.operation) == ("parts", operation)], steps)
            report.facts[f"parts of {operation}, µs"] = taken
            print(f"parts of {operation}, µs: " + "  ".join(f"{step} {cost:+d}" for step, cost in taken.items()), flush=True)
