"""LangGraph's filters, prefixes and patterns as SQL conditions with bound values.

Every condition is true or false, never null: a missing field is "not equal", whatever surrounds it.
Only leakproof comparisons of key columns reach the index under row-level security; conditions on the value are
checked on the rows that those leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from psycopg.sql import SQL, Composable, Placeholder

from ...filters import All, Any_, Compare, Condition, Contains, Equal, IsObject, Not, OneOf, Path
from ...operations import Access, Pattern
from ...scopes import NAMESPACE_HEAD, NAMESPACE_LIMIT, Labels, head, indexed, joined
from ...values import dump

#: Comes after every namespace, whatever its labels.
LAST = "\U0010ffff" * (NAMESPACE_LIMIT // 4 + 1)

_ORDERS: dict[str, LiteralString] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class Conditions:
    """Conditions joined by AND, and the values they bind."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._parts: list[Composable] = []

    def bound(self, value: Any) -> Placeholder:
        """A placeholder that carries this value."""
        name = f"c{len(self.params)}"
        self.params[name] = value
        return Placeholder(name)

    def add(self, text: LiteralString, **parts: Composable) -> None:
        self._parts.append(SQL(text).format(**parts))

    def sql(self) -> Composable:
        return SQL(" and ").join(self._parts) if self._parts else SQL("true")

    def visible(self, access: Access) -> None:
        """What any read may see: unexpired, up to the ceiling, of the permitted kinds."""
        self.add("(i.expires_at is null or i.expires_at > clock_timestamp())")
        self.add("i.classification <= {c}", c=self.bound(access.ceiling))
        if access.kinds is not None:
            self.add("i.kind = any ({k})", k=self.bound(list(access.kinds)))

    def under(self, prefix: Labels) -> None:
        """Namespaces that start with these labels."""
        if not prefix:
            return
        whole = joined(prefix)
        short = indexed(whole) == whole and len(whole.encode()) <= NAMESPACE_HEAD
        start = whole if short else head(whole)
        self.add("i.ns >= {a} and i.ns < {b}", a=self.bound(start), b=self.bound(_after(start)))
        if not short:
            self.add("starts_with(coalesce(i.namespace, i.ns), {w})", w=self.bound(whole))

    def meets(self, condition: Condition | None) -> None:
        """The value meets a filter."""
        if condition is not None:
            self._parts.append(self._compile(condition))

    def _compile(self, condition: Condition) -> Composable:
        match condition:
            case All(parts):
                return self._joined(" and ", parts, "true")
            case Any_(parts):
                return self._joined(" or ", parts, "false")
            case Not(part):
                return SQL("not ({p})").format(p=self._compile(part))
            case Equal(path, value):
                return self._total("{x} = {v}::jsonb", path, v=self._json(value))
            case OneOf(path, values):
                return self._total("{x} = any (array(select jsonb_array_elements({v}::jsonb)))", path, v=self._json(list(values)))
            case IsObject(path):
                return self._total("jsonb_typeof({x}) = 'object'", path)
            case Contains(path, values):
                return self._total("case when jsonb_typeof({x}) = 'array' then {x} @> {v}::jsonb end", path, v=self._json(list(values)))
            case Compare(path, order, str() as value):
                text = "case when jsonb_typeof({x}) = 'string' then ({x} #>> '{{}}') collate \"C\" {o} {v}::text end"
                return self._total(text, path, v=self.bound(value), o=SQL(_ORDERS[order]))
            case Compare(path, order, value):
                text = "case when jsonb_typeof({x}) = 'number' then {x} {o} {v}::jsonb end"
                return self._total(text, path, v=self._json(value), o=SQL(_ORDERS[order]))

    def _joined(self, word: LiteralString, parts: Iterable[Condition], none: LiteralString) -> Composable:
        compiled = [self._compile(part) for part in parts]
        return SQL("({})").format(SQL(word).join(compiled)) if compiled else SQL(none)

    def _total(self, text: LiteralString, path: Path, **parts: Composable) -> Composable:
        return SQL("coalesce({})").format(SQL(", ").join([SQL(text).format(x=self._field(path), **parts), SQL("false")]))

    def _field(self, path: Path) -> Composable:
        # Step by step: the path operator #> would take "0" for a position in a list.
        found: Composable = SQL("i.value")
        for name in path:
            found = SQL("({} -> {}::text)").format(found, self.bound(name))
        return found

    def _json(self, value: Any) -> Placeholder:
        return self.bound(dump(value).decode())


def contained(condition: Condition | None) -> dict[str, Any] | None:
    """The object that a value has to contain to meet a condition; None where containing isn't all there is to it."""
    found: dict[str, Any] = {}
    parts = condition.parts if isinstance(condition, All) else () if condition is None else (condition,)
    return found if all(_laid(part, found) for part in parts) else None


def _laid(part: Condition, found: dict[str, Any]) -> bool:
    match part:
        case All(parts):
            return all(_laid(inner, found) for inner in parts)
        case IsObject(path):
            return _set(found, path, {})
        case Equal(path, str() | int() | float() | None as value):
            return _set(found, path, value)
    # A list contains what it doesn't equal.
    return False


def _set(found: dict[str, Any], path: Path, value: Any) -> bool:
    *way, last = path
    node: Any = found
    for name in way:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            return False
    known = node.setdefault(last, value)
    # Said twice, it must be the same: what contradicts itself is left to the conditions.
    return known is value or (isinstance(known, dict) and value == {})


def bounds(prefix: Labels) -> tuple[str, str] | None:
    """The first namespace under a prefix and the first one after it; None for a prefix too long to stand in keys whole."""
    whole = joined(prefix)
    if indexed(whole) != whole or len(whole.encode()) > NAMESPACE_HEAD:
        return None
    return (whole, _after(whole)) if whole else ("", LAST)


def matching(conditions: Conditions, prefixes: Sequence[Pattern], suffixes: Sequence[Pattern]) -> Composable:
    """Namespaces, as arrays `x.labels`, that meet every pattern; "*" stands for exactly one label."""
    parts: list[Composable] = []
    for pattern in prefixes:
        parts.append(_long_enough(conditions, pattern))
        parts += [
            SQL("x.labels[{}] = {}").format(conditions.bound(at), conditions.bound(label))
            for at, label in enumerate(pattern, start=1)
            if label != "*"
        ]
    for pattern in suffixes:
        parts.append(_long_enough(conditions, pattern))
        parts += [
            SQL("x.labels[cardinality(x.labels) - {}::int] = {}").format(conditions.bound(len(pattern) - at), conditions.bound(label))
            for at, label in enumerate(pattern, start=1)
            if label != "*"
        ]
    return SQL(" and ").join(parts) if parts else SQL("true")


def _long_enough(conditions: Conditions, pattern: Pattern) -> Composable:
    return SQL("cardinality(x.labels) >= {}").format(conditions.bound(len(pattern)))


def _after(start: str) -> str:
    """The first text, by code points, that comes after every text that starts with `start`."""
    kept = start.rstrip("\U0010ffff")
    following = ord(kept[-1]) + 1
    # Surrogates are no characters: what follows U+D7FF is U+E000.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)


def literal_start(pattern: Pattern) -> Labels:
    """The labels of a pattern before its first "*"."""
    return pattern[: pattern.index("*")] if "*" in pattern else pattern
