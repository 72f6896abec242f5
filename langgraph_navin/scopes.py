"""Scopes, partitions, and how a LangGraph namespace finds its partition (contract 1, 4, 8).

A partition is a scope plus the id that selects one of its members, inside one tenant. A namespace is a
tuple of labels. Everything here is pure: no caller, no policy, no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

from .errors import InvalidNamespace, InvalidRequest

Scope: TypeAlias = Literal["session", "user", "agent", "shared_agents", "project", "team", "organization", "global"]
Mode: TypeAlias = Literal["session", "long_term", "agent", "shared", "knowledge_graph"]
Labels: TypeAlias = tuple[str, ...]

SCOPES: tuple[Scope, ...] = get_args(Scope)
MODES: tuple[Mode, ...] = get_args(Mode)

#: The mode that switches a scope on or off (contract 4).
MODE_OF: dict[Scope, Mode] = {
    "session": "session",
    "user": "long_term",
    "agent": "agent",
    "shared_agents": "shared",
    "project": "shared",
    "team": "shared",
    "organization": "shared",
    "global": "shared",
}

#: Separates ids and labels wherever they are listed; no id or label holds it.
UNIT = "\x1f"
#: The member of a scope that holds what names no member: unmapped namespaces under application identity.
NOBODY = "-"

#: Bytes. A tenant id stands in every key of every index.
TENANT_LIMIT = 128
#: Bytes. Longer partition ids are kept by their hash, so that index entries stay small.
PARTITION_LIMIT = 400
#: Bytes. Longer namespaces are indexed by their beginning and a hash of the whole.
NAMESPACE_LIMIT = 900
#: Bytes of such a beginning. A prefix up to this long is compared in the index alone.
NAMESPACE_HEAD = 800
#: Bytes of UTF-8.
KEY_LIMIT = 1024


def check_id(name: str, value: object) -> str:
    """Return `value` when it can be an id; raise `InvalidRequest` naming the field `name` otherwise."""
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name} must be text that is not empty, got {type(value).__name__}", field=name)
    check_text(name, value)
    return value


def check_text(name: str, value: str) -> None:
    """Refuse text that no key or id may hold: NUL, U+001F and lone surrogates."""
    if UNIT in value or "\x00" in value:
        raise InvalidRequest(f"{name} must not hold U+001F or NUL", field=name)
    if not encodable(value):
        raise InvalidRequest(f"{name} must be valid Unicode text, it holds a lone surrogate", field=name)


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Partition:
    """Whose memories these are, inside a tenant: (`user`, `u-42`)."""

    scope: Scope
    id: str
    #: The stored form, one text: `user:u-42`, or `user#` and a hash for an id over `PARTITION_LIMIT` bytes.
    text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_id("partition id", self.id)
        long = len(self.id) > PARTITION_LIMIT // 4 and len(self.id.encode()) > PARTITION_LIMIT
        tail = f"#{hashlib.sha256(self.id.encode()).hexdigest()}" if long else f":{self.id}"
        object.__setattr__(self, "text", self.scope + tail)


def scope_of(text: str) -> Scope:
    """The scope in a partition's stored form."""
    return cast(Scope, text.partition("#" if "#" in text.partition(":")[0] else ":")[0])


@dataclass(frozen=True, slots=True)
class Reach:
    """Where an operation lands: named partitions, and scopes whose every partition is meant."""

    partitions: tuple[Partition, ...] = ()
    scopes: tuple[Scope, ...] = ()

    @property
    def spans(self) -> bool:
        """Whether the partitions have to be looked up first."""
        return bool(self.scopes)

    def all_scopes(self) -> tuple[Scope, ...]:
        return tuple(dict.fromkeys([*self.scopes, *(p.scope for p in self.partitions)]))


def check_labels(labels: object, *, dots: bool = False) -> Labels:
    """Return a namespace or prefix as a tuple; raise `InvalidNamespace` where LangGraph's rules or ours are broken."""
    if isinstance(labels, str) or not isinstance(labels, (tuple, list)):
        raise InvalidNamespace(
            f'namespace must be a tuple of labels such as ("user", "u-42"), got {type(labels).__name__}', field="namespace"
        )
    for at, label in enumerate(labels):
        # Once checked, always right: only texts get into the cache, and an error never does.
        if type(label) is not str or not _is_label(label, dots):
            _check_label(at, label, dots)
    return tuple(labels)


@lru_cache(maxsize=4096)
def _is_label(label: str, dots: bool) -> bool:
    try:
        _check_label(0, label, dots)
    except InvalidNamespace:
        return False
    return True


def _check_label(at: int, label: object, dots: bool) -> None:
    where = f"namespace[{at}]"
    if not isinstance(label, str):
        raise InvalidNamespace(f"{where} must be text, got {type(label).__name__}", field=where)
    if not label:
        raise InvalidNamespace(f"{where} must not be empty", field=where)
    if "." in label and not dots:
        raise InvalidNamespace(f'{where} must not hold a dot; open with labels="any" to allow dots', field=where)
    if "\x00" in label or UNIT in label or not encodable(label):
        raise InvalidNamespace(f"{where} must not hold NUL, U+001F or a lone surrogate", field=where)


def check_namespace(labels: object, *, dots: bool = False) -> Labels:
    """`check_labels` for an item's own namespace, which has at least one label and a root other than `langgraph`."""
    checked = check_labels(labels, dots=dots)
    if not checked:
        raise InvalidNamespace("namespace must have at least one label", field="namespace")
    if checked[0] == "langgraph":
        raise InvalidNamespace('namespace[0] must not be "langgraph": LangGraph keeps that root', field="namespace[0]")
    return checked


def check_key(key: object) -> str:
    """Return an item's key; raise `InvalidRequest` for one that can't be kept."""
    if not isinstance(key, str):
        raise InvalidRequest(f"key must be text, got {type(key).__name__}", field="key")
    if "\x00" in key or not encodable(key):
        raise InvalidRequest("key must not hold NUL or a lone surrogate", field="key")
    if len(key) > KEY_LIMIT // 4 and len(key.encode()) > KEY_LIMIT:
        raise InvalidRequest(f"key must be at most {KEY_LIMIT} bytes of UTF-8, got {len(key.encode())}", field="key")
    return key


def joined(labels: Labels) -> str:
    """A namespace as one text: every label followed by U+001F, so that prefixes end at a label."""
    return UNIT.join(labels) + UNIT if labels else ""


def split(text: str) -> Labels:
    """The labels of a `joined` namespace."""
    return tuple(text[:-1].split(UNIT)) if text else ()


def indexed(text: str) -> str:
    """The form of a `joined` namespace that stands in keys: itself, or its beginning and a hash.

    A short form always ends with U+001F and a long one never does, so no two namespaces meet.
    """
    if len(text) <= NAMESPACE_LIMIT // 4:
        return text
    raw = text.encode()
    if len(raw) <= NAMESPACE_LIMIT:
        return text
    return head(text, NAMESPACE_HEAD + 3) + hashlib.sha256(raw).hexdigest()


def head(text: str, limit: int = NAMESPACE_HEAD) -> str:
    """The first `limit` bytes of `text`, cut between characters."""
    return text.encode()[:limit].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Rule:
    """An application's habit: namespaces shaped like `pattern` belong to the member of `scope` that `{…}` names."""

    pattern: Labels
    scope: Scope

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise InvalidRequest(f"namespaces: {self.scope!r} is not a scope; scopes are {', '.join(SCOPES)}", field="namespaces")
        if sum(_captures(label) for label in self.pattern) != 1:
            raise InvalidRequest('namespaces: a pattern needs exactly one id label such as "{user_id}"', field="namespaces")

    def member(self, labels: Labels) -> str | None:
        """The id in `labels`, or None where they don't fit this pattern."""
        if len(labels) < len(self.pattern):
            return None
        found = None
        for pattern, label in zip(self.pattern, labels, strict=False):
            if _captures(pattern):
                found = label
            elif pattern != label:
                return None
        return found

    def may_hold(self, prefix: Labels) -> bool:
        """Whether namespaces of this rule can start with `prefix` and be longer."""
        return len(prefix) < len(self.pattern) and all(_captures(p) or p == label for p, label in zip(self.pattern, prefix, strict=False))


def _captures(label: str) -> bool:
    return label.startswith("{") and label.endswith("}")


@dataclass(frozen=True, slots=True)
class NamespaceMap:
    """The one place that knows which label means what."""

    rules: tuple[Rule, ...] = ()

    def partition(self, labels: Labels, *, tenant: str, default: Scope, home: str = NOBODY) -> Partition:
        """The partition that an item of this namespace lives in. What no rule places belongs to `home`, a member of `default`."""
        scope, member = self._member(labels)
        if scope is None:
            return Partition(default, home)
        return Partition(scope, _only_member(scope, tenant) or member)

    def reach(self, prefix: Labels, *, tenant: str, default: Scope, home: str = NOBODY) -> Reach:
        """Every partition that can hold a namespace starting with `prefix`."""
        if not prefix:
            return Reach((), SCOPES)
        here = self.partition(prefix, tenant=tenant, default=default, home=home)
        if _names_scope(prefix):
            return Reach((here,))
        # Whatever the prefix itself belongs to, a longer rule may claim what lies below it.
        scopes = [rule.scope for rule in self.rules if rule.may_hold(prefix)]
        if prefix[0] in SCOPES:
            scopes.append(prefix[0])
        return Reach((here,), tuple(dict.fromkeys(scopes)))

    def _member(self, labels: Labels) -> tuple[Scope | None, str]:
        if _names_scope(labels):
            return cast(Scope, labels[0]), labels[1] if len(labels) > 1 else NOBODY
        for rule in self.rules:
            if (member := rule.member(labels)) is not None:
                return rule.scope, member
        return None, ""


def _names_scope(labels: Labels) -> bool:
    return bool(labels) and labels[0] in SCOPES and (len(labels) > 1 or labels[0] in ("organization", "global"))


def _only_member(scope: Scope, tenant: str) -> str | None:
    """Organization and global have one partition a tenant, whatever the labels after them say."""
    return {"organization": tenant, "global": NOBODY}.get(scope)


def rules(habits: Iterable[tuple[Sequence[str], str]]) -> tuple[Rule, ...]:
    """Rules from plain pairs such as `(("memories", "{user_id}"), "user")`."""
    return tuple(Rule(tuple(pattern), cast(Scope, scope)) for pattern, scope in habits)
