"""What the dictionary engine keeps: one shelf a tenant, one stored item a place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from ..errors import Conflict, PolicyDenied
from ..items import MemoryItem, level
from ..operations import Access, Remember
from ..scopes import Labels
from ..values import decode
from .words import Words

#: Partition (stored form), namespace, key: what names an item inside a tenant.
Place: TypeAlias = tuple[str, Labels, str]

#: A refreshing read prolongs a life by a tenth more than its length, and leaves alone what still has its whole length.
PROLONGED = 1.1


@dataclass(frozen=True, slots=True)
class Stored:
    """An item as it is kept, with its value as text, so that nobody can change it from outside."""

    item: MemoryItem
    value: bytes = field(repr=False)
    #: Seconds, None for no end.
    ttl: float | None
    words: Words

    @property
    def place(self) -> Place:
        return self.item.partition, self.item.namespace, self.item.key

    def fresh(self, score: float | None = None) -> MemoryItem:
        """The item, with a value of its own."""
        return replace(self.item, value=decode(self.value), score=score)

    def expired(self, now: datetime) -> bool:
        return self.item.expires_at is not None and self.item.expires_at <= now

    def until(self, end: datetime) -> Stored:
        return replace(self, item=replace(self.item, expires_at=end))

    def refreshed(self, now: datetime) -> Stored:
        """After a read that counts as use."""
        if self.ttl is None or self.item.expires_at is None or self.item.expires_at >= now + timedelta(seconds=self.ttl):
            return self
        return self.until(now + timedelta(seconds=self.ttl * PROLONGED))


@dataclass
class Shelf:
    """Everything of one tenant."""

    epoch: int = 0
    items: dict[Place, Stored] = field(default_factory=dict)

    def drop_expired(self, now: datetime) -> None:
        self.items = {place: stored for place, stored in self.items.items() if not stored.expired(now)}

    def take(self, access: Access, place: Place) -> bool:
        """Forget what stands there, if this caller may see it; whether there was anything."""
        stored = self.items.get(place)
        if stored is None or hidden(stored, access) is not None:
            return False
        del self.items[place]
        return True


def hidden(stored: Stored, access: Access) -> str | None:
    """The rule that hides an item from this caller, if one does."""
    if level(stored.item.classification) > access.ceiling:
        return "max_classification"
    return "allowed_kinds" if access.kinds is not None and stored.item.kind not in access.kinds else None


def check(shelf: Shelf, access: Access, place: Place, write: Remember | None) -> None:
    """Refuse a write that may not replace what stands there, or that expects another version. None forgets, and is never refused."""
    if write is None:
        return
    stored = shelf.items.get(place)
    if stored is not None and (rule := hidden(stored, access)) is not None:
        raise PolicyDenied(f"the policy's {rule} refuses to replace what stands there", rule=rule)
    if write.expected_version not in (None, stored.item.version if stored else 0):
        raise Conflict("a memory of this batch isn't at the expected version any more", rule="expected_version")
