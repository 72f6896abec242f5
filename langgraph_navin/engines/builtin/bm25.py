"""BM25 scores from posting arrays, exact for the rows one statement saw.

A posting is one number, `version << 24 | length << 10 | count`: which version of an item, how many
lexemes it has, how often this lexeme is among them. The variant is Lucene's: k1 = 1.2, b = 0.75,
`ln(1 + (N - df + 0.5) / (df + 0.5))`, times k1 + 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
B = 0.75

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HEADER = struct.Struct(">iiiii")
_EMPTY = struct.Struct(">iii")
_ELEMENT = np.dtype([("size", ">i4"), ("value", ">i8")])
_INT8_OID = 20


@dataclass(frozen=True, eq=False)
class Scored:
    """Versions with their scores: best first, equal scores by version."""

    vids: Ints
    scores: Floats

    def __len__(self) -> int:
        return len(self.vids)


def unpack(data: bytes) -> Ints:
    """The numbers of a PostgreSQL `bigint[]` in its binary form, as `array_send` gives it.

    Raises `ValueError` if the bytes aren't a plain array of `bigint` without nulls.
    """
    if len(data) == _EMPTY.size and _EMPTY.unpack(data)[0] == 0:
        return np.empty(0, np.int64)
    if len(data) < _HEADER.size:
        raise ValueError(f"not a binary bigint[]: {len(data)} bytes")
    dimensions, _, oid, count, _ = _HEADER.unpack_from(data)
    if dimensions != 1 or oid != _INT8_OID or len(data) != _HEADER.size + count * _ELEMENT.itemsize:
        raise ValueError(f"not a binary bigint[]: {dimensions} dimensions, type {oid}, {count} elements, {len(data)} bytes")
    return np.frombuffer(data, _ELEMENT, offset=_HEADER.size)["value"].astype(np.int64)


def score(
    postings: Iterable[tuple[str, bytes]],
    counts: Iterable[tuple[int, int]],
    dead: Iterable[tuple[int, int]] = (),
    *,
    limit: int | None = None,
) -> Scored:
    """Score every living version that holds one of the query's lexemes.

    `postings` are (lexeme, packed array), any number of arrays a lexeme; a repeated array counts
    once. `counts` are (documents, total length) of every part of the index, `dead` are (version,
    length) of what was replaced or deleted since. `limit` keeps only the best.
    """
    gone = dict(dead)
    sizes = list(counts)
    n = sum(size[0] for size in sizes) - len(gone)
    lexeme, packed = _living(_gathered(postings), gone)
    if n <= 0 or not len(packed):
        return Scored(np.empty(0, np.int64), np.empty(0, np.float64))
    average = (sum(size[1] for size in sizes) - sum(gone.values())) / n
    weights = _idf(n, np.bincount(lexeme)) * (K1 + 1)
    return _ranked(*_summed(packed >> 24, weights[lexeme] * _saturation(packed, average)), limit)


def _gathered(postings: Iterable[tuple[str, bytes]]) -> list[list[bytes]]:
    found: dict[str, set[bytes]] = {}
    for lexeme, data in postings:
        # A version is in one array of a lexeme only, so equal arrays are the same one, asked for twice.
        found.setdefault(lexeme, set()).add(data)
    # In the lexemes' order: float sums, and with them the ranking, don't depend on the rows' order.
    return [list(arrays) for _, arrays in sorted(found.items())]


def _living(gathered: list[list[bytes]], gone: dict[int, int]) -> tuple[Ints, Ints]:
    """All postings in one array, and beside them which lexeme each belongs to."""
    arrays = [(number, unpack(data)) for number, datas in enumerate(gathered) for data in datas]
    packed = np.concatenate([np.empty(0, np.int64), *(array for _, array in arrays)])
    lexeme = np.repeat(np.array([number for number, _ in arrays], np.int64), [len(array) for _, array in arrays])
    if gone:
        alive = ~np.isin(packed >> 24, np.fromiter(gone, np.int64, len(gone)))
        lexeme, packed = lexeme[alive], packed[alive]
    return lexeme, packed


def _idf(n: int, df: NDArray[np.intp]) -> Floats:
    weights: Floats = np.log1p((n - df + 0.5) / (df + 0.5))
    return weights


def _saturation(packed: Ints, average: float) -> Floats:
    count = (packed & 1023).astype(np.float64)
    length = (packed >> 10) & 16383
    share: Floats = count / (count + K1 * (1 - B + B * length / average))
    return share


def _summed(vids: Ints, addends: Floats) -> tuple[Ints, Floats]:
    low = int(vids.min())
    span = int(vids.max()) - low + 1
    if span > 20 * len(vids) + 100_000:
        found, places = np.unique(vids, return_inverse=True)
        return found, np.asarray(np.bincount(places, addends), np.float64)
    # Near neighbours: one slot each is faster than sorting them.
    sums = np.asarray(np.bincount(vids - low, addends, span), np.float64)
    slots = np.flatnonzero(sums).astype(np.int64)
    return slots + low, sums[slots]


def _ranked(vids: Ints, scores: Floats, limit: int | None) -> Scored:
    if limit is not None and len(vids) > 4 * limit > 0:
        worst = np.partition(scores, -limit)[-limit]
        kept = scores >= worst
        vids, scores = vids[kept], scores[kept]
    order = np.lexsort((vids, -scores))[:limit]
    return Scored(vids[order], scores[order])
