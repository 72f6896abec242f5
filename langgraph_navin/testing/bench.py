"""A test's workbench: one engine, one fresh tenant, one colour, and short words for the operations."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from ..abc import Engine
from ..effects import Steps
from ..filters import parse
from ..items import MemoryItem, Receipt, level, new_id
from ..operations import Access, Answer, Call, Forget, Get, GetItem, ListItems, ListNamespaces, Operation, Remember, Search, Update
from ..scopes import Labels, Partition, Reach, Scope
from ..values import encode

T = TypeVar("T")

USER = Partition("user", "u-1")
OTHER = Partition("user", "u-2")
NOTES: Labels = ("user", "u-1", "notes")


class Perform(Protocol):
    """Carries out an engine's plan, in whichever colour the test runs in."""

    def __call__(self, plan: Steps[T]) -> T: ...


def write(key: str = "k", value: dict[str, Any] | None = None, *, namespace: Labels = NOTES, **fields: Any) -> Remember:
    """A `Remember` with an id of its own."""
    value = {"text": key} if value is None else value
    return Remember(namespace, key, encode(value), **{"item_id": new_id(), "document": value} | fields)


def rewrite(item_id: str, value: dict[str, Any], **fields: Any) -> Update:
    """An `Update` by id."""
    return Update(item_id, encode(value), value, **fields)


def reach(*partitions: Partition, scopes: tuple[Scope, ...] = ()) -> Reach:
    """These partitions and whole scopes; the user's own when nothing is named."""
    return Reach(partitions or (() if scopes else (USER,)), scopes)


class Bench:
    """Asks an engine as the service would, for one tenant."""

    def __init__(self, engine: Engine, perform: Perform, tenant: str | None = None) -> None:
        self.engine = engine
        self.perform = perform
        self.tenant = tenant or f"t-{uuid.uuid4().hex}"
        self.access = Access(
            tenant=self.tenant, agent="agent", actor="application", epoch=0, policy_version=0, ceiling=level("confidential")
        )

    def as_caller(self, **changes: Any) -> Bench:
        """The same tenant, under other limits: `ceiling`, `kinds`, `epoch`…"""
        other = Bench(self.engine, self.perform, self.tenant)
        other.access = replace(self.access, **changes)
        return other

    def ask(self, *asked: Operation | Call) -> list[Answer]:
        """A batch. Bare operations land in the user's own partition."""
        calls = [one if isinstance(one, Call) else Call(one, reach()) for one in asked]
        return self.perform(self.engine.steps(self.access, calls))

    def one(self, operation: Operation, at: Reach | None = None) -> Any:
        return self.ask(Call(operation, at or reach()))[0]

    def remember(self, key: str = "k", value: dict[str, Any] | None = None, *, at: Partition = USER, **fields: Any) -> MemoryItem:
        stored: MemoryItem = self.one(write(key, value, **fields), reach(at))
        return stored

    def get(self, key: str = "k", *, namespace: Labels = NOTES, at: Partition = USER, refresh: bool = False) -> MemoryItem | None:
        found: MemoryItem | None = self.one(Get(namespace, key, refresh), reach(at))
        return found

    def by_id(self, item_id: str, at: Reach | None = None) -> MemoryItem | None:
        found: MemoryItem | None = self.one(GetItem(item_id), at)
        return found

    def forget(self, key: str = "k", *, namespace: Labels = NOTES) -> Receipt:
        receipt: Receipt = self.one(Forget(namespace, key))
        return receipt

    def listed(self, prefix: Labels = (), filter: dict[str, Any] | None = None, at: Reach | None = None, **page: Any) -> list[MemoryItem]:
        found: list[MemoryItem] = self.one(ListItems(prefix, parse(filter), **{"limit": 100, "refresh": False} | page), at)
        return found

    def keys(self, *asked: Any, **more: Any) -> list[str]:
        """The keys that `listed` finds, in its order."""
        return [item.key for item in self.listed(*asked, **more)]

    def search(
        self, query: str, prefix: Labels = (), filter: dict[str, Any] | None = None, at: Reach | None = None, **page: Any
    ) -> list[MemoryItem]:
        found: list[MemoryItem] = self.one(Search(prefix, query, parse(filter), **{"limit": 100, "refresh": False} | page), at)
        return found

    def hits(self, *asked: Any, **more: Any) -> list[str]:
        """The keys that `search` finds, best first."""
        return [item.key for item in self.search(*asked, **more)]

    def namespaces(self, *prefixes: Labels, at: Reach | None = None, **more: Any) -> list[Labels]:
        found: list[Labels] = self.one(ListNamespaces(prefixes, **more), at)
        return found

    def until_gone(self, key: str = "k") -> None:
        """Wait until an item can't be read any more."""
        until(lambda: self.get(key) is None)


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until the condition holds; fail when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
