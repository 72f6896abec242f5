"""What every read asks alike: which partitions, under whose settings, in which portions, and whether the policy still holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.sql import SQL, Composable, Identifier

from ...abc import StalePolicy
from ...effects import Steps
from ...operations import Access, Call, ListItems, Search
from ...scopes import Labels
from .conditions import Conditions
from .documents import listed
from .rows import WORN
from .statements import Row, query

#: Partitions in one statement: the policy compares each row with all of them.
PORTION = 200


def partitions_of(access: Access, call: Call) -> Steps[list[str]]:
    """The partitions that a call may look into, those of whole scopes looked up."""
    found = dict.fromkeys(p.text for p in call.reach.partitions)
    if call.reach.spans:
        rows = yield from query("partitions_of", {"tenant": access.tenant, "scopes": list(call.reach.scopes)})
        found |= dict.fromkeys(row[0] for row in rows)
    if not found:
        yield from confirm(access)
    return list(found)


def confirm(access: Access) -> Steps[None]:
    """Compare the policy epoch where there is nothing to read."""
    rows = yield from query("epoch_of", {"tenant": access.tenant})
    if rows[0][0] != access.epoch:
        raise StalePolicy


def shared(access: Access, partitions: Iterable[str]) -> dict[str, Any]:
    """The parameters of every reading function."""
    return {
        "tenant": access.tenant,
        "parts": listed(partitions),
        "epoch": access.epoch,
        "ceiling": access.ceiling,
        "kinds": list(access.kinds) if access.kinds is not None else None,
    }


def read(access: Access, conditions: Conditions) -> dict[str, Any]:
    """The parameters of a composed statement."""
    return {"tenant": access.tenant, "epoch": access.epoch, **conditions.params}


def enter(access: Access, partitions: Sequence[str]) -> dict[str, Any]:
    """The settings that a composed statement runs under."""
    return {"tenant": access.tenant, "parts": listed(partitions)}


def portions_of(partitions: list[str]) -> Iterator[list[str]]:
    """Partitions, as many as one statement takes."""
    for start in range(0, len(partitions), PORTION):
        yield partitions[start : start + PORTION]


def conditions_of(access: Access, prefix: Labels, op: ListItems | Search) -> Conditions:
    """What an item has to meet to be seen under a prefix."""
    conditions = Conditions()
    conditions.visible(access)
    conditions.under(prefix)
    conditions.meets(op.where)
    return conditions


def scope_of(conditions: Conditions, partitions: list[str], table: str = "i") -> Composable:
    """The condition that rows of a table, by its alias, belong to these partitions."""
    # One partition by equality: only then is the index walked in order.
    column = Identifier(table, "partition")
    if len(partitions) == 1:
        return SQL("{} = {}").format(column, conditions.bound(partitions[0]))
    return SQL("{} = any ({})").format(column, conditions.bound(partitions))


def fresh(rows: Sequence[Row]) -> list[Row]:
    """The rows of an answer without its first column, which says that the policy changed, and without the empty answer."""
    if any(row[0] for row in rows):
        raise StalePolicy
    return [row[1:] for row in rows if row[1] is not None]


@dataclass(slots=True)
class Worn:
    """Items that a refreshing read found past their due, by the settings they are to be refreshed under."""

    parts: dict[str, None] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)

    def note(self, row: Row) -> None:
        if row[WORN]:
            self.parts[row[1]] = None
            self.ids.append(row[0])

    def refresh(self, access: Access, asked: bool) -> Steps[None]:
        if asked and self.ids:
            yield from query("refresh", {"tenant": access.tenant, "parts": listed(self.parts), "ids": self.ids}, writes=True)
