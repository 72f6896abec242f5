"""Rows of the engine's tables, as items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import orjson
from psycopg.sql import SQL

from ...items import CLASSIFICATIONS, MemoryItem
from ...scopes import split
from ...values import decode

#: What a read selects of `items i`, in the order that `item` takes it. `worn` says that a refreshing read should prolong it.
COLUMNS_TEXT: LiteralString = (
    "i.id::text, i.partition, coalesce(i.namespace, i.ns) as ns, i.key, i.value::text as value, i.kind, i.classification, i.importance,"
    " i.source::text as source, i.version, i.created_at, i.updated_at, i.expires_at,"
    " coalesce(i.expires_at < clock_timestamp() + i.ttl_s * interval '1 s', false) as worn"
)
COLUMNS = SQL(COLUMNS_TEXT)
WIDTH = 14
WORN = 13


def item(row: Sequence[Any], score: float | None = None) -> MemoryItem:
    """An item from the `WIDTH` columns of `COLUMNS`."""
    return MemoryItem(
        id=row[0],
        partition=row[1],
        namespace=split(row[2]),
        key=row[3],
        value=decode(row[4]),
        kind=row[5],
        classification=CLASSIFICATIONS[row[6]],
        importance=row[7],
        source=None if row[8] is None else orjson.loads(row[8]),
        version=row[9],
        created_at=row[10],
        updated_at=row[11],
        expires_at=row[12],
        score=score,
    )
