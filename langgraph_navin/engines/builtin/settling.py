"""Vectors of large partitions come to rest in an index: which partitions, how their vectors move, and what the index looks like.

Fresh vectors are compared one by one, which is the fastest there is below some ten thousand. Above, maintenance moves
them to another table, where each large partition has an HNSW index of its own. Writers never touch that table's
indexes, and a search reads both tables in one snapshot. Only who owns the schema can make an index; without that,
everything is compared, and `unindexed` says how many partitions would be faster otherwise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from ...effects import Steps
from .statements import composed, define, query

#: Vectors of one partition from which on it deserves an index.
SETTLE_AT = 10_000
#: Indexes, at most: every one is looked at when a statement on settled vectors is planned.
MOST = 64
#: Vectors that move in one transaction where an index takes them in, a few milliseconds each, and where there is none yet.
PORTION, FIRST_PORTION = 500, 5_000
#: Portions in one round, so that other upkeep gets its turn.
PORTIONS, FIRST_PORTIONS = 8, 10_000
#: Dimensions that pgvector indexes in full precision. Up to 4,000 in half; what is found is compared in full again.
FULL = 2_000

#: pgvector's operator of each distance.
DISTANCES = {"cosine": "<=>", "l2": "<->", "inner_product": "<#>"}
_OPERATORS = {"cosine": "cosine_ops", "l2": "l2_ops", "inner_product": "ip_ops"}


def indexed(vector: Composable, dims: int, schema: str) -> Composable:
    """A vector as the indexes hold it: the expression of an index, and of whatever is to be found by one."""
    return SQL("{}::{}.{}({})").format(vector, Identifier(schema), Identifier(_type(dims)), Literal(dims))


def _type(dims: int) -> str:
    return "vector" if dims <= FULL else "halfvec"


@dataclass(frozen=True, slots=True)
class Large:
    """A partition that deserves an index."""

    tenant: str
    partition: str
    dims: int
    distance: str
    #: In both tables.
    vectors: int

    @property
    def name(self) -> str:
        """The index's name, another one for another way to compare."""
        told = "\x1f".join((self.tenant, self.partition, str(self.dims), self.distance))
        return "ann_" + hashlib.sha256(told.encode()).hexdigest()[:32]

    def build(self, schema: str) -> Composed:
        return composed(
            "build",
            name=Identifier(self.name),
            column=indexed(Identifier("embedding"), self.dims, schema),
            vector_schema=Identifier(schema),
            operators=Identifier(f"{_type(self.dims)}_{_OPERATORS[self.distance]}"),
            tenant=Literal(self.tenant),
            partition=Literal(self.partition),
        )

    def note(self, *, ready: bool) -> Steps[None]:
        about = {"tenant": self.tenant, "partition": self.partition, "dims": self.dims, "distance": self.distance}
        yield from query("note_ann", about | {"name": self.name, "vectors": self.vectors, "ready": ready}, writes=True)


def settle(at: int | None = None, *, thorough: bool) -> Steps[dict[str, int]]:
    """Move fresh vectors to where an index takes them in; if `thorough`, also find who deserves an index, make it, drop what is useless.

    Answers how many vectors moved; where thorough, how many indexes there are, and how many more this role can't make.
    """
    found = yield from query("settling", {})
    if not found:
        return {}
    schema, able, busy = found[0]
    if not thorough:
        return {"settled": (yield from _move_all(PORTION))}
    large = [Large(*row) for row in (yield from query("large", {"at": SETTLE_AT if at is None else at, "most": MOST}))]
    whole: dict[str, bool] = {name: valid for name, valid in (yield from query("indexes", {}))}
    first = 0
    # Somebody else's build looks like a broken index until it has ended.
    if able and not busy:
        whole = yield from _dropped(large, whole)
        for one in large:
            first += yield from _served(one, whole, schema)
    moved = first + (yield from _move_all(1))
    ready = sum(whole.get(one.name, False) for one in large)
    return {"settled": moved, "indexed": ready, "unindexed": 0 if able else len(large) - ready}


def _dropped(large: list[Large], whole: dict[str, bool]) -> Steps[dict[str, bool]]:
    """Drop indexes that are broken, or whose partition is small, gone, or compared in another way by now; what is left."""
    wanted = {one.name for one in large}
    kept = {name: True for name, valid in whole.items() if valid and name in wanted}
    yield from query("strike_ann", {"names": list(kept)}, writes=True)
    for name in whole.keys() - kept.keys():
        yield from define(composed("unbuild", name=Identifier(name)))
    return kept


def _served(one: Large, whole: dict[str, bool], schema: str) -> Steps[int]:
    """See to it that a large partition has its index. Its vectors move before, since a build is much faster than so many inserts."""
    moved = 0
    if one.name not in whole:
        moved = yield from _move(one.tenant, one.partition, FIRST_PORTION, FIRST_PORTIONS)
        yield from one.note(ready=False)
        yield from define(one.build(schema))
        yield from define(composed("learn"))
        whole[one.name] = True
    yield from one.note(ready=True)
    return moved


def _move_all(at_least: int) -> Steps[int]:
    """Move fresh vectors of all partitions that have an index and so many of them."""
    moved, left = 0, PORTIONS
    for tenant, partition in (yield from query("unsettled", {"rows": at_least})):
        now = yield from _move(tenant, partition, PORTION, left)
        moved, left = moved + now, left - -(-now // PORTION)
        if left <= 0:
            break
    return moved


def _move(tenant: str, partition: str, portion: int, portions: int) -> Steps[int]:
    moved = 0
    for _ in range(portions):
        rows = yield from query("settle", {"tenant": tenant, "partition": partition, "rows": portion}, writes=True)
        moved += rows[0][0] or 0
        # Less than asked for: there are no more, or somebody else is at it, or writes them just now.
        if (rows[0][0] or 0) < portion:
            break
    return moved
