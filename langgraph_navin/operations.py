"""The contract's operations (contract 6), as values.

A door makes an `Operation`; the service finds out where it lands and whether it may, which makes a `Call`;
an engine answers calls. Operations name a namespace (LangGraph's words) and the service turns it into partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .errors import InvalidRequest
from .filters import Condition
from .items import DEFAULT_CLASSIFICATION, DEFAULT_KIND, Classification, Kind, MemoryItem, Receipt, check_kind, level
from .scopes import Labels, Partition, Reach, Scope, check_key, check_labels

#: Which paths of a value are searchable: None follows the store's configuration, False none.
Index: TypeAlias = Literal[False] | tuple[str, ...] | None
#: The search for namespaces: a pattern of labels, where "*" stands for one label.
Pattern: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """Write one item, new or in place of the one under the same key."""

    namespace: Labels
    key: str
    #: The value as JSON text, checked.
    value: bytes = field(repr=False)
    #: Of a new item, made by the caller of the service (UUIDv7). An existing item keeps its own.
    item_id: str
    document: Mapping[str, Any] = field(repr=False)
    kind: Kind = DEFAULT_KIND
    classification: Classification = DEFAULT_CLASSIFICATION
    importance: int | None = None
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    index: Index = None
    #: Seconds after the last write or refreshing read; None never expires.
    ttl: float | None = None
    #: Refuse unless this is the version that stands there; 0 asks for no item at all.
    expected_version: int | None = None
    #: Whether the answer is to be the stored item. LangGraph's put answers nothing.
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Get:
    namespace: Labels
    key: str
    #: Whether reading counts as use and prolongs the item's life.
    refresh: bool = True


@dataclass(frozen=True, slots=True)
class GetItem:
    """Read by id, in any partition the caller may read."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the value of an item by id; the old version goes to the history."""

    item_id: str
    value: bytes = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    namespace: Labels
    key: str


@dataclass(frozen=True, slots=True)
class ForgetItem:
    """Forget by id."""

    item_id: str


@dataclass(frozen=True, slots=True)
class ListItems:
    """Items under a prefix, newest first."""

    prefix: Labels
    where: Condition | None = None
    limit: int = 10
    offset: int = 0
    refresh: bool = True


@dataclass(frozen=True, slots=True)
class Search:
    """Items under a prefix that answer a question, best first."""

    prefix: Labels
    query: str = field(repr=False)
    where: Condition | None = None
    limit: int = 10
    offset: int = 0
    refresh: bool = True


@dataclass(frozen=True, slots=True)
class ListNamespaces:
    """Namespaces that hold something, sorted. `prefix` and `suffix` may hold "*" for one label."""

    prefixes: tuple[Pattern, ...] = ()
    suffixes: tuple[Pattern, ...] = ()
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True)
class GetHealth:
    """Whether the engine answers. Reaches it."""


@dataclass(frozen=True, slots=True)
class GetCapabilities:
    """What the engine announces. Never reaches it."""


Write: TypeAlias = Remember | Update | Forget | ForgetItem
Read: TypeAlias = Get | GetItem | ListItems | Search | ListNamespaces
Operation: TypeAlias = Write | Read | GetHealth | GetCapabilities
Answer: TypeAlias = MemoryItem | Receipt | list[MemoryItem] | list[Labels] | Mapping[str, Any] | None

#: The contract's name of each operation: what capabilities, audit and errors call it.
NAMES: dict[type[Any], str] = {
    Remember: "remember",
    Get: "get",
    GetItem: "get",
    Update: "update",
    Forget: "forget",
    ForgetItem: "forget",
    ListItems: "list",
    Search: "search",
    ListNamespaces: "list",
    GetHealth: "get_health",
    GetCapabilities: "get_capabilities",
}
WRITES = (Remember, Update, Forget, ForgetItem)


def check(operation: Operation) -> None:
    """Refuse an operation that no door has checked: raises `InvalidRequest` naming the field."""
    labels = getattr(operation, "namespace", getattr(operation, "prefix", ()))
    check_labels(labels, dots=True)
    if isinstance(operation, (Remember, Get, Forget)):
        check_key(operation.key)
    if isinstance(operation, (GetItem, Update, ForgetItem)):
        _check_item_id(operation.item_id)
    if isinstance(operation, Remember):
        _check_item_id(operation.item_id)
        check_kind(operation.kind)
        level(operation.classification)
        if operation.importance is not None and not 1 <= operation.importance <= 10:
            raise InvalidRequest("importance must be between 1 and 10", field="importance")


def _check_item_id(item_id: object) -> None:
    try:
        uuid.UUID(str(item_id))
    except ValueError:
        raise InvalidRequest("item_id must be the id of a memory, a UUID", field="item_id") from None


def name_of(operation: Operation) -> str:
    return NAMES[type(operation)]


@dataclass(frozen=True, slots=True)
class Access:
    """What an engine must know of the caller and the decision, for a whole batch. Engines see no policy."""

    tenant: str
    agent: str
    #: A pseudonym, for the journal.
    actor: str
    #: The tenant's policy epoch at the time of the decision: an engine refuses to act on an older one.
    epoch: int
    policy_version: int
    #: The highest classification level that may be read or replaced.
    ceiling: int
    #: Kinds that may be read; None for all.
    kinds: tuple[Kind, ...] | None = None
    trace: str | None = None
    #: Whether the batch comes again in parts if it is refused: then a refusal by what stands there is answered, not recorded.
    tentative: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that was allowed, and where it lands."""

    operation: Operation
    reach: Reach = field(default_factory=Reach)

    @property
    def partition(self) -> Partition:
        """The one partition of an operation on one item."""
        (only,) = self.reach.partitions
        return only

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return self.reach.all_scopes()
