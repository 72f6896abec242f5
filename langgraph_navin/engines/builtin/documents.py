"""Writes as the documents that the function `write` takes: items, keys to forget, a text index a part, vectors.

Pure. Texts are made into lexemes here and vectors asked for before, so that nothing but PostgreSQL's own work happens
while a row is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import orjson
from langgraph.store.base import get_text_at_path, tokenize_path

from ...items import level
from ...operations import Index, Remember
from ...scopes import UNIT, indexed, joined
from ...values import dump
from .lexemes import counted
from .session import Reals

#: Partition (stored form), namespace (indexed form), key: what names a row inside a tenant.
Place: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Put:
    """A `Remember` on its place, with the texts that are to be found."""

    place: Place
    write: Remember
    #: Texts for the model.
    texts: tuple[str, ...] = field(repr=False)
    #: Lexemes in the chosen texts, and how often each is there. Counted at once: the application may change its dict later.
    length: int
    counts: Mapping[str, int] = field(repr=False)
    #: Whether the item must still be the one with this id: its place may have been given to another one.
    by_id: bool = False

    @classmethod
    def of(cls, partition: str, write: Remember, configured: Sequence[str], *, embeds: bool, by_id: bool = False) -> Put:
        chosen = paths(write.index, configured)
        if not chosen:
            return cls(place(partition, write), write, (), 0, {}, by_id=by_id)
        texts = tuple(embedded(write.document, chosen)) if embeds else ()
        return cls(place(partition, write), write, texts, *counted(spoken(write.document, chosen)), by_id=by_id)

    def item(self, position: int) -> dict[str, Any]:
        """The element of `p_puts` at this position."""
        write = self.write
        partition, ns, key = self.place
        element = {
            "o": position,
            "p": partition,
            "n": ns,
            "k": key,
            "i": write.item_id,
            "v": orjson.Fragment(write.value),
            "f": write.kind,
            "c": level(write.classification),
        }
        return element | self._more(ns)

    def _more(self, ns: str) -> dict[str, Any]:
        """What most puts don't have, and then don't send."""
        write = self.write
        whole = joined(write.namespace)
        more: dict[str, Any] = {}
        if whole != ns:
            more["w"] = whole
        if write.importance is not None:
            more["m"] = write.importance
        if write.source is not None:
            more["s"] = orjson.Fragment(dump(dict(write.source)))
        if write.ttl is not None:
            more["t"] = write.ttl
        if self.length:
            more["d"] = self.length
        if self.texts:
            more["e"] = min(len(self.texts), 32_767)
        if write.expected_version is not None:
            more["x"] = write.expected_version
        if self.by_id:
            more["u"] = True
        return more


def place(partition: str, write: Any) -> Place:
    return partition, indexed(joined(write.namespace)), write.key


def paths(index: Index, configured: Sequence[str]) -> tuple[str, ...]:
    """The paths of a value that are searchable: the write's own, or the store's."""
    if index is False:
        return ()
    return tuple(dict.fromkeys(configured if index is None else index))


def embedded(value: Mapping[str, Any], chosen: Sequence[str]) -> Iterator[str]:
    """The texts of the chosen paths, as LangGraph reads them: `$` is the whole value, a list gives one text each."""
    for path in chosen:
        found = get_text_at_path(value, tokenize_path(path) if path != "$" else path)
        yield from (text for text in found if text)


def spoken(value: Mapping[str, Any], chosen: Sequence[str]) -> Iterator[str]:
    """The words of the chosen paths. Of a whole value the leaves: names of fields stand in every item and say nothing."""
    for path in chosen:
        if path in ("$", ""):
            yield from _leaves(value)
        else:
            yield from (text for text in get_text_at_path(value, tokenize_path(path)) if text)


def _leaves(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, (int, float)) and not isinstance(node, bool):
            yield str(node)


def one(put: Put, vectors: Sequence[Sequence[float]], distance: str) -> dict[str, Any]:
    """The item's parameters of `put_one`."""
    write = put.write
    partition, ns, key = put.place
    whole = joined(write.namespace)
    return {
        "partition": partition,
        "ns": ns,
        "whole": None if whole == ns else whole,
        "key": key,
        "id": write.item_id,
        "value": write.value.decode(),
        "kind": write.kind,
        "classification": level(write.classification),
        "importance": write.importance,
        "source": None if write.source is None else dump(dict(write.source)).decode(),
        "ttl": write.ttl,
        "length": put.length,
        "count": min(len(put.texts), 32_767),
        "text": orjson.dumps({lexeme: [1 << 10 | count] for lexeme, count in put.counts.items()}).decode() if put.length else None,
        **_vectors([put], vectors, distance),
    }


def batch(puts: Sequence[Put], forgotten: Mapping[Place, str | None], vectors: Sequence[Sequence[float]], distance: str) -> dict[str, Any]:
    """The document parameters of `write`; None for a part that is empty."""
    parts: dict[tuple[str, int], _Part] = {}
    for at, put in enumerate(puts, start=1):
        if put.length:
            parts.setdefault((put.place[0], level(put.write.classification)), _Part()).add(at, put)
    return {
        "puts": _json([put.item(at) for at, put in enumerate(puts, start=1)]),
        "gone": _json([_named(at, i=item_id) for at, item_id in forgotten.items()]),
        "texts": _json([part.text(p, c) for (p, c), part in parts.items()]),
        **_vectors(puts, vectors, distance),
    }


def _vectors(puts: Sequence[Put], vectors: Sequence[Sequence[float]], distance: str) -> dict[str, Any]:
    places = [_named(put.place, f=str(at)) for put in puts for at in range(len(put.texts))]
    # Whoever builds indexes learns from the first how searches compare.
    places[:1] = [place | {"d": distance} for place in places[:1]]
    return {"fields": _json(places), "vectors": Reals(np.asarray(vectors, np.float32)) if places else None}


@dataclass(slots=True)
class _Part:
    """The inverted index of one part's texts in this batch."""

    positions: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    index: dict[str, list[int]] = field(default_factory=dict)

    def add(self, position: int, put: Put) -> None:
        self.positions.append(position)
        self.lengths.append(put.length)
        first = len(self.positions) << 10
        for lexeme, count in put.counts.items():
            if (postings := self.index.get(lexeme)) is None:
                self.index[lexeme] = [first | count]
            else:
                postings.append(first | count)

    def text(self, partition: str, classification: int) -> dict[str, Any]:
        """The element of `p_texts`."""
        total = sum(self.lengths)
        return {"p": partition, "c": classification, "l": total, "v": self.positions, "d": self.lengths, "i": self.index}


def _named(at: Place, **more: str | None) -> dict[str, str | None]:
    return {"p": at[0], "n": at[1], "k": at[2], **more}


def _json(rows: list[Any]) -> str | None:
    return orjson.dumps(rows).decode() if rows else None


def listed(texts: Iterable[str]) -> str:
    """Ids as the settings take them: joined by U+001F."""
    return UNIT.join(texts)
