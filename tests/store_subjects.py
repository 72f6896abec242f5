"""The three stores under one set of verbs: LangGraph's two reference stores and ours, each in both colours.

Where they disagree, a test says so with `Ruling`: what ours does, what a peer does, and why we chose ours.
The peers' side is asserted too, so that the statement stays true when they change.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, Item, Op, Result, SearchItem

Name = Literal["memory", "postgres", "navin"]
Colour = Literal["sync", "async"]
Namespace = tuple[str, ...]
T = TypeVar("T")

SUBJECTS = ["memory-sync", "memory-async", "postgres-sync", "postgres-async", "navin-sync", "navin-async"]

#: InMemoryStore knows no expiry.
timed = pytest.mark.parametrize("subject", SUBJECTS[2:], indirect=True)
#: Rules that LangGraph's stores don't have.
navin_only = pytest.mark.parametrize("subject", SUBJECTS[4:], indirect=True)


@dataclass(frozen=True)
class Subject:
    """Which store a test drives, and by which of its two faces."""

    name: Name
    colour: Colour

    @classmethod
    def parse(cls, text: str) -> Subject:
        name, colour = text.split("-")
        return cls(name, colour)  # type: ignore[arg-type]


class Do:
    """LangGraph's verbs on one store, awaited in either colour, so that one body tests both."""

    def __init__(self, subject: Subject, store: BaseStore) -> None:
        self.name = subject.name
        self.colour = subject.colour
        self.store = store

    async def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if self.colour == "sync":
            return getattr(self.store, verb)(*args, **kwargs)
        return await getattr(self.store, f"a{verb}")(*args, **kwargs)

    async def put(self, namespace: Any, key: str, value: Any, index: Any = None, **kwargs: Any) -> None:
        await self._call("put", namespace, key, value, index, **kwargs)

    async def get(self, namespace: Any, key: str, **kwargs: Any) -> Item | None:
        item: Item | None = await self._call("get", namespace, key, **kwargs)
        return item

    async def must_get(self, namespace: Any, key: str, **kwargs: Any) -> Item:
        item = await self.get(namespace, key, **kwargs)
        assert item is not None, f"{key} is missing"
        return item

    async def delete(self, namespace: Any, key: str) -> None:
        await self._call("delete", namespace, key)

    async def search(self, prefix: Any, **kwargs: Any) -> list[SearchItem]:
        found: list[SearchItem] = await self._call("search", prefix, **kwargs)
        return found

    async def list_namespaces(self, **kwargs: Any) -> list[Namespace]:
        found: list[Namespace] = await self._call("list_namespaces", **kwargs)
        return found

    async def batch(self, ops: Iterable[Op]) -> list[Result]:
        results: list[Result] = await self._call("batch", ops)
        return results

    async def keys(self, prefix: Any, **kwargs: Any) -> list[str]:
        """The keys that a search finds, in its order."""
        return [item.key for item in await self.search(prefix, **kwargs)]

    async def key_set(self, prefix: Any, **kwargs: Any) -> str:
        """The keys that a search finds, sorted and joined: an answer without an order."""
        return " ".join(sorted(await self.keys(prefix, limit=100, **kwargs)))


#: The fixture `opened`: opens the subject with options (`index`, `ttl`).
Opened = Callable[..., Awaitable[Do]]


@dataclass(frozen=True)
class Raises:
    """An outcome: this error, with every one of these words in its message."""

    kind: type[BaseException]
    naming: tuple[str, ...] = ()


#: A peer's outcome that is the same as ours.
AGREES: Any = object()


class Ruling:
    """What each store is known to do in one case. Ours is the rule, `why` the reason where a peer differs."""

    def __init__(self, ours: Any, *, memory: Any = AGREES, postgres: Any = AGREES, why: str = "") -> None:
        if not why and not (memory is AGREES and postgres is AGREES):
            raise TypeError("a disagreement needs its reason")
        self._outcomes = {"navin": ours, "memory": memory, "postgres": postgres}

    def of(self, do: Do | Subject) -> Any:
        """The outcome expected of this store."""
        outcome = self._outcomes[do.name]
        return self._outcomes["navin"] if outcome is AGREES else outcome

    async def check(self, do: Do, attempt: Callable[[], Awaitable[Any]]) -> None:
        """Assert that the attempt ends as this store is known to end it."""
        expected = self.of(do)
        if not isinstance(expected, Raises):
            assert await attempt() == expected
            return
        with pytest.raises(expected.kind) as caught:
            await attempt()
        for word in expected.naming:
            assert re.search(re.escape(word), str(caught.value)), f"{word!r} is not named"


class LetterCounts(Embeddings):
    """Embeds a text as its normalised letter counts: equal letters, equal vector. Deterministic, no model."""

    dims = 64

    def _vector(self, text: str) -> list[float]:
        counts = [0.0] * self.dims
        for letter in text:
            counts[ord(letter) % self.dims] += 1.0
        length = math.sqrt(sum(count * count for count in counts))
        return [count / length for count in counts] if length else [1.0] + [0.0] * (self.dims - 1)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vector(text)


async def taken(attempt: Callable[[], Awaitable[Any]]) -> bool:
    """True, once the attempt was accepted, whatever it answered."""
    await attempt()
    return True


def indexed(*fields: str) -> dict[str, Any]:
    """An index configuration over these paths; none means the whole value."""
    return {"dims": LetterCounts.dims, "embed": LetterCounts(), "fields": list(fields) or ["$"]}


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 15.0) -> None:
    """Wait until the condition holds; fail when it never does."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.02)


async def until_gone(do: Do, namespace: Namespace, key: str) -> None:
    """Wait until an item can't be read any more, without refreshing it."""

    async def gone() -> bool:
        return await do.get(namespace, key, refresh_ttl=False) is None

    await eventually(gone)
