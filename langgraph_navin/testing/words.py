"""Full-text search over a few documents, by the book: BM25 without an index.

Lucene's variant: k1 = 1.2, b = 0.75, idf `ln(1 + (N - df + 0.5) / (df + 0.5))`, times k1 + 1. Texts become lexemes as
in the builtin engine, and everything else is written anew, so that the two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langgraph.store.base import get_text_at_path, tokenize_path

from ..engines.builtin.lexemes import counted, lexemes

K1 = 1.2
B = 0.75

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Words:
    """The lexemes of one document."""

    length: int = 0
    counts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: Mapping[str, Any], paths: Sequence[str]) -> Words:
        """The words at these paths of a value; `$` is all of it, where field names aren't words."""
        return cls(*counted(text for path in paths for text in _texts(value, path)))


def _texts(value: Mapping[str, Any], path: str) -> Iterator[str]:
    if path in ("$", ""):
        yield from _leaves(value)
    else:
        yield from get_text_at_path(value, tokenize_path(path))


def _leaves(node: Any) -> Iterator[str]:
    match node:
        case str():
            yield node
        case dict():
            for part in node.values():
                yield from _leaves(part)
        case list():
            for part in node:
                yield from _leaves(part)
        case bool():
            return
        case int() | float():
            yield str(node)


def scores(documents: Mapping[P, Words], question: str) -> dict[P, float]:
    """The score of every document that holds a lexeme of the question. Documents without a text count for nothing."""
    texts = {place: words for place, words in documents.items() if words.length}
    if not texts:
        return {}
    average = sum(words.length for words in texts.values()) / len(texts)
    found: dict[P, float] = {}
    # In the lexemes' order: sums of floats depend on it.
    for lexeme in sorted(set(lexemes(question))):
        holders = {place: words for place, words in texts.items() if lexeme in words.counts}
        weight = math.log1p((len(texts) - len(holders) + 0.5) / (len(holders) + 0.5)) * (K1 + 1)
        for place, words in holders.items():
            count = words.counts[lexeme]
            share = count / (count + K1 * (1 - B + B * words.length / average))
            found[place] = found.get(place, 0.0) + weight * share
    return found
