"""Strict types: what a graph declares comes back in another process, anything else is refused by name."""

from __future__ import annotations

import datetime
import enum
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde import jsonplus
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.store.base import Item
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

import langgraph_navin.errors
from langgraph_navin.errors import InvalidRequest
from langgraph_navin.saver import NavinSaver, StrictSerializer
from saver_subjects import Dialled, Do, checkpoint, fresh_database, thread

APP = """
import dataclasses, enum, sys
import psycopg, pydantic
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from saver_subjects import Dialled
from langgraph_navin.saver import NavinSaver

class Mood(enum.Enum):
    CALM = "calm"

class Customer(pydantic.BaseModel):
    name: str
    mood: Mood

@dataclasses.dataclass
class Ticket:
    number: int
    tags: set[str] = dataclasses.field(default_factory=set)

@dataclasses.dataclass
class State:
    ticket: Ticket | None = None
    customers: list[Customer] = dataclasses.field(default_factory=list)
    answer: str = ""

def fill(state):
    return {"ticket": Ticket(7, {"urgent"}), "customers": [Customer(name="Ann", mood=Mood.CALM)]}

def ask(state):
    return {"answer": f"{interrupt('ok?')} {state.ticket!r} {state.customers!r}"}

builder = StateGraph(State)
builder.add_node("fill", fill)
builder.add_node("ask", ask)
builder.add_edge(START, "fill")
builder.add_edge("fill", "ask")
graph = builder.compile(checkpointer=NavinSaver(Dialled(sys.argv[1])))
config = {"configurable": {"thread_id": sys.argv[2]}}

if __name__ == "__main__":
    import app
    given = app.State() if sys.argv[3] == "start" else Command(resume="yes")
    print(app.graph.invoke(given, config).get("answer"))
"""


@pytest.fixture(scope="module")
def dsn(server_dsn: str) -> Iterator[str]:
    with fresh_database(server_dsn) as fresh:
        NavinSaver(Dialled(fresh)).setup()
        yield fresh


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, dsn: str) -> Do:
    return Do(NavinSaver(Dialled(dsn)), request.param)


def test_dataclass_and_pydantic_state_resume_in_another_process(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    thread_id = uuid.uuid4().hex
    assert _run(tmp_path, dsn, thread_id, "start") == ""
    told = _run(tmp_path, dsn, thread_id, "resume")
    assert told == "yes Ticket(number=7, tags={'urgent'}) [Customer(name='Ann', mood=<Mood.CALM: 'calm'>)]"


def _run(folder: Path, *arguments: str) -> str:
    ours = Path(langgraph_navin.errors.__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "LANGGRAPH_STRICT_MSGPACK"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [folder, ours, Path(__file__).parents[1]]))
    ran = subprocess.run([sys.executable, "app.py", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


# --- what a graph declares -------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int


@dataclass
class Shape:
    colour: Colour = Colour.RED
    corners: list[Point] = field(default_factory=lambda: [Point(x=1)])


@dataclass
class Stranger:
    """A type that no graph here declares."""

    secret: str = "hunter2"


class Drawing(TypedDict, total=False):
    shape: Shape
    anything: Any


def drawing(saver: Any, **update: Any) -> Any:
    builder = StateGraph(Drawing)
    builder.add_node("draw", lambda state: update)
    builder.add_edge(START, "draw")
    return builder.compile(checkpointer=saver)


async def test_declared_types_come_back_as_themselves(do: Do) -> None:
    graph, config = drawing(do.saver, shape=Shape()), thread()
    await do("invoke", {"anything": None}, config, on=graph)
    assert (await do("get_state", config, on=graph)).values["shape"] == Shape()


async def test_a_function_graph_declares_its_types_too(do: Do) -> None:
    async def grow(number: int, *, previous: Shape | None = None) -> Shape:
        return Shape(corners=[*(previous.corners if previous else []), Point(x=number)])

    # LangGraph reads a function's annotations as they are; this module's are postponed, so plain strings.
    grow.__annotations__ = {"number": int, "previous": Shape | None, "return": Shape}
    graph, config = entrypoint(checkpointer=do.saver)(grow), thread()
    await graph.ainvoke(1, config)
    grown: Any = await graph.ainvoke(2, config)
    assert grown.corners == [Point(x=1), Point(x=2)]


def test_other_savers_stay_as_they_were(dsn: str) -> None:
    NavinSaver(Dialled(dsn))
    memory = InMemorySaver()
    graph, config = drawing(memory, anything=Stranger()), thread()
    assert graph.checkpointer is memory
    graph.invoke({}, config)
    assert graph.get_state(config).values["anything"] == Stranger()


@pytest.mark.parametrize("left", [None, object()])
def test_a_langgraph_without_the_flag_is_reported(
    dsn: str, left: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph._internal._serde", left)
    NavinSaver(Dialled(dsn))
    assert "serde_types" in caplog.text


# --- what it refuses -------------------------------------------------------------------------------


async def test_an_undeclared_type_is_refused_before_it_is_saved(do: Do) -> None:
    graph, config = drawing(do.saver, anything=[{"deep": Stranger()}]), thread()
    with pytest.raises(InvalidRequest, match=rf"{__name__}\.Stranger.*serde_types") as caught:
        await do("invoke", {}, config, on=graph)
    assert "hunter2" not in str(caught.value)
    assert caught.value.details["types"] == [f"{__name__}.Stranger"]
    assert all("anything" not in found.checkpoint["channel_values"] for found in await do.list(config))


async def test_a_named_type_is_allowed(dsn: str) -> None:
    saver = NavinSaver(Dialled(dsn), serde_types=[Stranger])
    graph, config = drawing(saver, anything=Stranger()), thread()
    await graph.ainvoke({}, config)
    assert graph.get_state(config).values["anything"] == Stranger()


async def test_an_undeclared_type_that_others_saved_is_an_error_on_every_read(do: Do, dsn: str) -> None:
    config = thread()
    with PostgresSaver.from_conn_string(dsn) as permissive:
        held, versions = checkpoint(permissive, text=[Stranger()])
        permissive.put(config, held, {}, versions)
    for read in [do("get_tuple", config), do.list(config)]:
        with pytest.raises(InvalidRequest, match=rf"{__name__}\.Stranger.*serde_types") as caught:
            await read
        assert "hunter2" not in str(caught.value)


def test_nothing_is_imported_or_built_for_a_blocked_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    built: list[int] = []

    class Outer:
        def __init__(self, value: Any) -> None:
            built.append(value)

    monkeypatch.setattr(sys.modules[__name__], "Outer", Outer, raising=False)
    inner = extension(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, ("trap_module", "Trap", 1))
    blob = ormsgpack.packb([extension(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, (__name__, "Outer", inner))])
    with pytest.raises(InvalidRequest, match=r"trap_module\.Trap"):
        StrictSerializer([(__name__, "Outer")]).loads_typed(("msgpack", blob))
    assert "trap_module" not in sys.modules
    assert built == []


def extension(code: int, payload: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(payload))


class Moment(datetime.datetime):
    """LangGraph writes it as a call that it refuses to make when reading."""


@pytest.mark.parametrize("one", [Moment(2030, 1, 1), [Moment(2030, 1, 1)]])
def test_a_type_that_never_comes_back_is_refused_without_a_remedy_that_fails(one: object) -> None:
    with pytest.raises(InvalidRequest, match=rf"{__name__}\.Moment: it can't be restored") as caught:
        StrictSerializer([Moment]).dumps_typed(one)
    assert "serde_types" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (99, ("builtins", "set", [])),
        (jsonplus.EXT_CONSTRUCTOR_POS_ARGS, "no list"),
        (jsonplus.EXT_CONSTRUCTOR_POS_ARGS, []),
        (jsonplus.EXT_CONSTRUCTOR_POS_ARGS, [["builtins"], "set", []]),
        (jsonplus.EXT_METHOD_SINGLE_ARG, ["os", None, 1, "system"]),
        (jsonplus.EXT_PYDANTIC_V2, ("hunter2 is the\npassword", "x", {})),
    ],
)
def test_an_extension_that_names_no_class_is_refused_and_not_quoted(code: int, payload: object) -> None:
    with pytest.raises(InvalidRequest, match="a type without a readable name") as caught:
        StrictSerializer().loads_typed(("msgpack", ormsgpack.packb({"key": extension(code, payload)})))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["app.Ticket", ("app",), ("app", 1), Stranger()])
def test_serde_types_takes_classes_and_pairs_only(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="serde_types"):
        StrictSerializer([wrong])


# --- what always passes ----------------------------------------------------------------------------

_plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])) | st.binary()
_safe = _plain | st.datetimes() | st.uuids() | st.decimals(allow_nan=False) | st.frozensets(st.integers(0, 9)) | st.timedeltas()
_values = st.recursive(_safe, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4), max_leaves=20)


@given(_values)
def test_plain_values_and_safe_types_come_back(value: object) -> None:
    strict = StrictSerializer()
    assert strict.loads_typed(strict.dumps_typed(value)) == value


_AT = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "value",
    [
        AIMessage("hello", id="1"),
        Send("node", {"price": Decimal("1.5")}),
        Interrupt(value={"question": "?"}, id="i"),
        Item(namespace=("a",), key="k", value={"v": 1}, created_at=_AT, updated_at=_AT),
        Path("a") / "b",
    ],
)
def test_langgraphs_own_types_come_back(value: object) -> None:
    strict = StrictSerializer()
    assert strict.loads_typed(strict.dumps_typed([value])) == [value]


def test_arrays_are_data_not_types() -> None:
    array = extension(jsonplus.EXT_NUMPY_ARRAY, ("<i4", (0,), "C", b""))
    StrictSerializer().loads_typed(("msgpack", ormsgpack.packb([array])))
