"""What a checkpoint may hold: LangGraph's safe types, the graph's own, and the ones the user names.

A checkpoint names the classes of its values, and LangGraph's serializer imports and calls what is
named. In its strict mode it hands back the raw data of a class it doesn't know, so that a node meets
a `dict` where it expects its dataclass. Here an unknown class is an error, already on writing, so
that no checkpoint exists that can't be resumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_navin.errors import InvalidRequest

#: What a msgpack extension calls when it is decoded: (module, name) or (module, name, method).
Called = tuple[str, ...]

_CONSTRUCTORS = frozenset(
    {
        jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG,
        jsonplus.EXT_CONSTRUCTOR_POS_ARGS,
        jsonplus.EXT_CONSTRUCTOR_KW_ARGS,
        jsonplus.EXT_PYDANTIC_V1,
        jsonplus.EXT_PYDANTIC_V2,
    }
)
# Stands for an extension that names nothing we can check. It is in no allow-list.
_UNREADABLE: Called = ("", "")
# A checkpoint's text ends up in error messages only if it looks like a class name (`Box[int]` is one).
_CLASS_NAME = re.compile(r"[\w.\[\], ]{1,200}")


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's msgpack serializer that raises on a type outside its allow-list, on write and on read.

    `allowed` adds classes, or (module, name) pairs, to LangGraph's safe types. A blocked type raises
    `InvalidRequest` that names it; on read nothing of the value has been imported or constructed.
    """

    def __init__(self, allowed: Iterable[type | tuple[str, ...]] = ()) -> None:
        self._names: frozenset[Called] = frozenset(_named(one) for one in allowed)
        super().__init__(allowed_msgpack_modules=tuple(self._names))

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> StrictSerializer:
        """A serializer that also allows `extra_allowlist`; this one when nothing is new."""
        names = self._names.union(_named(one) for one in extra_allowlist)
        return self if names == self._names else StrictSerializer(names)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """As LangGraph's.

        Raises:
            InvalidRequest: If the value holds a type that couldn't be read back.
        """
        kind, data = super().dumps_typed(obj)
        self._check(kind, data)
        return kind, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """As LangGraph's.

        Raises:
            InvalidRequest: If the stored value holds a type outside the allow-list.
        """
        self._check(*data)
        return super().loads_typed(data)

    def _check(self, kind: str, data: bytes) -> None:
        if kind == "msgpack" and (blocked := {one for one in calls(data) if not self._allows(one)}):
            raise _refusal(blocked)

    def _allows(self, called: Called) -> bool:
        return called in SAFE_MSGPACK_TYPES or called in self._names or called in SAFE_MSGPACK_METHODS


def calls(data: bytes) -> set[Called]:
    """What decoding this msgpack document would call, at any depth. Nothing is imported or called."""
    found: set[Called] = set()

    def visit(code: int, payload: bytes) -> None:
        if code == jsonplus.EXT_NUMPY_ARRAY:
            return
        inner = ormsgpack.unpackb(payload, ext_hook=visit, option=ormsgpack.OPT_NON_STR_KEYS)
        if code != jsonplus.EXT_DELTA_SNAPSHOT:
            found.add(_called(code, inner))

    ormsgpack.unpackb(data, ext_hook=visit, option=ormsgpack.OPT_NON_STR_KEYS)
    return found


def _called(code: int, payload: Any) -> Called:
    parts: list[Any] = payload if isinstance(payload, list) else []
    if code in _CONSTRUCTORS:
        name = parts[:2]
    elif code == jsonplus.EXT_METHOD_SINGLE_ARG:
        name = [*parts[:2], *parts[3:4]]
    else:
        name = []
    readable = len(name) >= 2 and all(isinstance(part, str) for part in name)
    return tuple(name) if readable else _UNREADABLE


def _named(one: type | tuple[str, ...]) -> Called:
    if isinstance(one, type):
        return one.__module__, one.__name__
    if isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one):
        return one
    raise InvalidRequest("serde_types takes classes and (module, name) pairs of strings", field="serde_types")


def _refusal(blocked: set[Called]) -> InvalidRequest:
    names = sorted({_printable(one) for one in blocked})
    text = f"a checkpoint may not hold {', '.join(names)}"
    if any(len(one) == 2 and one != _UNREADABLE for one in blocked):
        return InvalidRequest(f"{text}: if you trust it, name it in Navin.open(serde_types=[…])", types=names)
    return InvalidRequest(f"{text}: it can't be restored, so store a plain value in its place", types=names)


def _printable(called: Called) -> str:
    name = ".".join(called[:2])
    return name if name != "." and _CLASS_NAME.fullmatch(name) else "a type without a readable name"
