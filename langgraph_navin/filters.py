"""LangGraph's filters, read once into conditions that every engine answers alike (contract 8).

    {"age": 3}  {"age": {"$gt": 3}}  {"home": {"city": "Lyon"}}  {"$or": [{…}, {…}]}  {"tags": {"$contains": "a"}}

The meaning, where LangGraph's own stores disagree:

- numbers compare as numbers, text by code point, and a comparison of different types is no match;
- a missing field equals nothing, so `$ne` and `$not` match it; an explicit null equals None;
- a dict without `$` is a partial match at any depth, `{}` asks for an object; a list must be equal as a whole;
- booleans are not numbers.

`parse` makes the conditions, `matches` answers them for a value in memory; an engine may compile them instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias, cast

from .errors import InvalidRequest
from .values import DEPTH_LIMIT, check

Path: TypeAlias = tuple[str, ...]
Order: TypeAlias = Literal["$gt", "$gte", "$lt", "$lte"]


@dataclass(frozen=True, slots=True)
class Equal:
    """The field is there and equals `value`."""

    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Compare:
    """The field is a number or text like `value`, and stands in this order to it."""

    path: Path
    order: Order
    value: int | float | str


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is a list that holds every one of `values`."""

    path: Path
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is there and equals one of `values`."""

    path: Path
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IsObject:
    """The field is an object."""

    path: Path


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any_:
    parts: tuple[Condition, ...]


Condition: TypeAlias = Equal | OneOf | Compare | Contains | IsObject | Not | All | Any_

_ORDERS = ("$gt", "$gte", "$lt", "$lte")
_OPERATORS = "$eq, $ne, $gt, $gte, $lt, $lte, $in, $contains and $not"


def parse(filter: Mapping[str, Any] | None) -> Condition | None:
    """The condition that a filter states, None where it states nothing.

    Raises:
        InvalidRequest: an unknown operator, an operand of the wrong type, or a value that JSON doesn't have.
    """
    if filter is None:
        return None
    if not isinstance(filter, Mapping):
        _refuse("filter", f"must be a dict, got {type(filter).__name__}")
    parts = tuple(_fields("filter", (), filter, 0))
    return All(parts) if parts else None


def _fields(name: str, path: Path, filter: Mapping[str, Any], depth: int) -> Iterator[Condition]:
    if depth > DEPTH_LIMIT // 4:
        _refuse("filter", f"is nested deeper than {DEPTH_LIMIT // 4} levels")
    for key, operand in filter.items():
        if not isinstance(key, str):
            _refuse(name, f"has a key of type {type(key).__name__}; field names are text")
        if key in ("$and", "$or"):
            yield _branches(f"{name}.{key}", key, path, operand, depth)
        elif key == "$not":
            yield Not(_whole(f"{name}.$not", path, operand, depth))
        elif key.startswith("$"):
            _refuse(name, f"has the unsupported operator {key[:32]!r}; beside fields there are $and, $or and $not")
        else:
            check({key: None}, name)
            yield from _field(f"{name}.{key[:64]}", (*path, key), operand, depth + 1)


def _branches(name: str, operator: str, path: Path, operand: Any, depth: int) -> Condition:
    if not isinstance(operand, Sequence) or isinstance(operand, str):
        _refuse(name, f"must be a list of filters, got {type(operand).__name__}")
    parts = tuple(_whole(f"{name}[{at}]", path, part, depth + 1) for at, part in enumerate(operand))
    return All(parts) if operator == "$and" else Any_(parts)


def _whole(name: str, path: Path, operand: Any, depth: int) -> Condition:
    if not isinstance(operand, Mapping):
        _refuse(name, f"must be a filter (a dict), got {type(operand).__name__}")
    return All(tuple(_fields(name, path, operand, depth + 1)))


def _field(name: str, path: Path, operand: Any, depth: int) -> Iterator[Condition]:
    if not isinstance(operand, Mapping):
        check(operand, name)
        yield Equal(path, operand)
        return
    operators = [key for key in operand if isinstance(key, str) and key.startswith("$")]
    if not operators:
        yield IsObject(path)
        yield from _fields(name, path, operand, depth)
    elif len(operators) < len(operand):
        _refuse(name, "mixes operators and fields; put the fields into a filter of their own")
    else:
        for operator, value in operand.items():
            yield _operator(f"{name}.{operator[:32]}", path, operator, value, depth)


def _operator(name: str, path: Path, operator: str, value: Any, depth: int) -> Condition:
    if operator == "$not":
        inner = value if isinstance(value, Mapping) else {"$eq": value}
        return Not(All(tuple(_field(name, path, inner, depth + 1))))
    check(value, name)
    if operator == "$eq":
        return Equal(path, value)
    if operator == "$ne":
        return Not(Equal(path, value))
    if operator in _ORDERS:
        return Compare(path, cast(Order, operator), _comparable(name, value))
    if operator == "$in":
        return OneOf(path, tuple(_list(name, value)))
    if operator == "$contains":
        return Contains(path, tuple(value) if isinstance(value, list) else (value,))
    _refuse(name, f"is an unsupported operator; there are {_OPERATORS}")


def _comparable(name: str, value: Any) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        _refuse(name, f"must be a number or text, got {type(value).__name__}")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        _refuse(name, f"must be a list, got {type(value).__name__}")
    return value


def _refuse(name: str, why: str) -> NoReturn:
    raise InvalidRequest(f"{name} {why}", field=name)


# --- the answers, in memory ---------------------------------------------------------------------------------------

_MISSING = object()


def matches(condition: Condition | None, value: Mapping[str, Any]) -> bool:
    """Whether a value meets a condition. None meets everything."""
    match condition:
        case None:
            return True
        case All(parts):
            return all(matches(part, value) for part in parts)
        case Any_(parts):
            return any(matches(part, value) for part in parts)
        case Not(part):
            return not matches(part, value)
        case Equal(path, wanted):
            return same(_at(value, path), wanted)
        case OneOf(path, wanted):
            found = _at(value, path)
            return found is not _MISSING and any(same(found, one) for one in wanted)
        case IsObject(path):
            return isinstance(_at(value, path), dict)
        case Compare(path, order, wanted):
            return _ordered(_at(value, path), order, wanted)
        case Contains(path, wanted):
            found = _at(value, path)
            return isinstance(found, list) and all(any(_holds(one, w) for one in found) for w in wanted)


def _at(value: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


def same(left: Any, right: Any) -> bool:
    """JSON equality: as Python's, but a boolean is never a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return bool(left == right)


def _holds(element: Any, wanted: Any) -> bool:
    """JSON containment, as PostgreSQL's `@>` has it for the elements of a list."""
    if isinstance(element, dict) and isinstance(wanted, dict):
        return all(k in element and _holds(element[k], v) for k, v in wanted.items())
    if isinstance(element, list) and isinstance(wanted, list):
        return all(any(_holds(one, w) for one in element) for w in wanted)
    return same(element, wanted)


def _ordered(found: Any, order: Order, wanted: int | float | str) -> bool:
    if isinstance(found, bool) or isinstance(found, str) is not isinstance(wanted, str):
        return False
    if not isinstance(found, (int, float, str)):
        return False
    left, right = cast(Any, found), cast(Any, wanted)
    return bool({"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[order])
