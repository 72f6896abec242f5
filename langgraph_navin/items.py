"""A memory as it comes back: the value, and beside it what governs it (contract 1, 6, 8)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from .errors import InvalidRequest
from .scopes import Labels, Scope, scope_of

Kind: TypeAlias = Literal["episodic", "semantic", "procedural", "preference", "fact"]
Classification: TypeAlias = Literal["public", "internal", "confidential", "restricted"]

KINDS: tuple[Kind, ...] = get_args(Kind)
#: In rising order: the position is the level that is stored and compared.
CLASSIFICATIONS: tuple[Classification, ...] = get_args(Classification)
_LEVELS: dict[str, int] = {word: at for at, word in enumerate(CLASSIFICATIONS)}

DEFAULT_KIND: Kind = "fact"
DEFAULT_CLASSIFICATION: Classification = "internal"


def new_id() -> str:
    """A UUIDv7: unique, and in the order of time."""
    stamp = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    # Version and variant stand over six of the random bits. Written out here: a UUID object costs more than the rest.
    digits = f"{stamp << 80 | chance & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def level(classification: str) -> int:
    """The stored number of a classification; raises `InvalidRequest` for a word that isn't one."""
    try:
        return _LEVELS[classification]
    except (KeyError, TypeError):
        raise InvalidRequest(f"classification must be one of {', '.join(CLASSIFICATIONS)}", field="classification") from None


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}", field="kind")


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One memory. Its `repr` shows where it is, never what it says."""

    id: str
    partition: str
    namespace: Labels
    key: str
    value: dict[str, Any] = field(repr=False)
    created_at: datetime
    updated_at: datetime
    kind: Kind = DEFAULT_KIND
    classification: Classification = DEFAULT_CLASSIFICATION
    version: int = 1
    #: Between 1 and 10, or None where nobody said.
    importance: int | None = None
    #: Provenance: who said it, where, when observed.
    source: dict[str, Any] | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    #: Higher is better; None where nothing was asked for.
    score: float | None = None

    @property
    def scope(self) -> Scope:
        return scope_of(self.partition)

    @property
    def content(self) -> str | None:
        """The text of a memory that was remembered as text."""
        text = self.value.get("content")
        return text if isinstance(text, str) else None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What `forget` did: whether something was there, and from where it is gone."""

    found: bool
    item_id: str | None = None
    #: Places that no longer hold the content.
    erased_from: tuple[str, ...] = ()
