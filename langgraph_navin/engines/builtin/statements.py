"""The engine's SQL: named texts from `sql/`, and the effect that asks for one of them.

Identifiers and conditions are composed with `psycopg.sql`; values are always bound. Nothing is an f-string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeAlias, cast

from psycopg.sql import SQL, Composable, Composed

from ...effects import Steps

Params: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[Any, ...]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def named() -> Mapping[str, LiteralString]:
    """Every statement of `statements.sql` by its name, without its comments."""
    _, *parts = _NAME.split(text("statements.sql"))
    return {name: _uncommented(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def text(path: str) -> str:
    """A file of this room's `sql/` directory."""
    return files(__package__).joinpath("sql", path).read_text(encoding="utf-8")


def _uncommented(body: str) -> str:
    return "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))


def composed(name: str, /, **parts: Composable) -> Composed:
    """A named statement with its identifiers and conditions filled in."""
    return SQL(named()[name]).format(**parts)


@dataclass(frozen=True, slots=True)
class Query:
    """Run one statement as a transaction of its own and give back its rows.

    With `enter`, the caller's settings go first in the same pipeline, and so in the same transaction.
    """

    statement: LiteralString | Composed
    params: Params = field(repr=False)
    #: Whether it changes something: then it is sent again only when it is certain that it never arrived.
    writes: bool = False
    enter: Params | None = field(default=None, repr=False)
    #: The statement that `enter` is for.
    entry: str = "enter"
    #: Whether it is planned for its own values every time.
    once: bool = False


def query(name: str, params: Params, *, writes: bool = False) -> Steps[list[Row]]:
    """Ask for a named statement."""
    return cast("list[Row]", (yield Query(named()[name], params, writes)))


def select(statement: Composed, params: Params, enter: Params, *, entry: str = "enter", once: bool = False) -> Steps[list[Row]]:
    """Ask for a composed read, under the caller that `enter` names."""
    return cast("list[Row]", (yield Query(statement, params, False, enter, entry, once)))


def define(statement: Composed) -> Steps[None]:
    """Ask for a definition, such as an index: it takes no values and answers nothing."""
    yield Query(statement, {}, writes=True)
