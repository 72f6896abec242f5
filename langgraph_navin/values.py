"""What a memory may hold: a JSON object that survives exactly, or an error that names the path (contract 8)."""

from __future__ import annotations

import math
from typing import Any, NoReturn, cast

import orjson

from .errors import InvalidRequest
from .scopes import encodable

#: Nesting levels. The parser on the way back has a limit of its own; this one is met first.
DEPTH_LIMIT = 200
#: Bytes of JSON text in one value.
SIZE_LIMIT = 64 * 1024 * 1024
#: PostgreSQL's JSON and orjson agree on what lies inside: signed or unsigned 64 bit.
INT_MIN, INT_MAX = -(2**63), 2**64 - 1


def encode(value: object, name: str = "value") -> bytes:
    """JSON text of `value`, after checking that reading it back gives the same value.

    Raises:
        InvalidRequest: names the path and what stands there, never the content.
    """
    if not isinstance(value, dict):
        _refuse(name, f"must be a JSON object (a dict), got {type(value).__name__}")
    check(value, name)
    data = dump(value)
    if len(data) > SIZE_LIMIT:
        _refuse(name, f"must be at most {SIZE_LIMIT} bytes of JSON, got {len(data)}")
    return data


def dump(value: object) -> bytes:
    """JSON text of a value that `check` has passed."""
    data = orjson.dumps(value)
    if b"e+1" in data and (spelled := _spelled(value)) is not value:
        data = orjson.dumps(spelled)
    return data


def decode(text: str | bytes) -> dict[str, Any]:
    """The value that `encode` was given."""
    return cast("dict[str, Any]", orjson.loads(text))


def check(value: object, name: str) -> None:
    """Refuse what JSON or PostgreSQL would change or reject, naming where in the value it is."""
    try:
        fits = _fits(value, 0)
    except RecursionError:
        # A legal value, on a stack that is nearly full: the walk below needs none.
        fits = False
    if not fits:
        _explain(value, name)


def _fits(node: object, depth: int) -> bool:
    """Whether a plain value comes back as it is. The long answer is `_explain`'s: most values fit, and nobody waits for their paths."""
    kind = type(node)
    if kind is str:
        return _storable(cast(str, node))
    if kind is dict or kind is list:
        return depth < DEPTH_LIMIT and _parts_fit(node, depth + 1)
    if kind is int:
        return INT_MIN <= cast(int, node) <= INT_MAX
    if kind is float:
        return math.isfinite(cast(float, node))
    return kind is bool or node is None


def _parts_fit(node: Any, depth: int) -> bool:
    if type(node) is dict:
        for key in node:
            if type(key) is not str or not _storable(key):
                return False
        node = node.values()
    # A loop and not `all(…)`: this is walked for every value that is written.
    for part in node:
        if not _fits(part, depth):
            return False
    return True


def _storable(text: str) -> bool:
    return "\x00" not in text and (text.isascii() or encodable(text))


def _explain(value: object, name: str) -> None:
    """Walk the value and refuse the first part that doesn't fit; a subclass that equals its plain type does."""
    stack: list[tuple[str, object, int]] = [(name, value, 0)]
    while stack:
        path, node, depth = stack.pop()
        kind = type(node) if type(node) in _PLAIN else _base(node)
        if kind is str:
            _text(path, cast(str, node))
        elif kind is bool or node is None:
            continue
        elif kind is int:
            if not INT_MIN <= cast(int, node) <= INT_MAX:
                _refuse(path, "must fit into 64 bit; keep larger integers as text")
        elif kind is float:
            if not math.isfinite(cast(float, node)):
                _refuse(path, "must be a finite number; JSON has no NaN or infinity")
        elif kind is dict:
            _deeper(path, depth)
            stack.extend((f"{path}.{_key(path, k)}", v, depth + 1) for k, v in cast("dict[object, object]", node).items())
        elif kind is list:
            _deeper(path, depth)
            stack.extend((f"{path}[{at}]", v, depth + 1) for at, v in enumerate(cast("list[object]", node)))
        else:
            _refuse(path, f"is of type {kind.__name__}, which JSON can't give back; use text, numbers, booleans, None, lists and dicts")


_PLAIN = frozenset({str, bool, int, float, dict, list, type(None)})


def _base(node: object) -> type:
    """What a subclass comes back as: the plain container or text equals it. A number of another class may not."""
    return next((plain for plain in (dict, list, str) if isinstance(node, plain)), type(node))


def _spelled(node: Any) -> Any:
    """`node` with floats between 10^16 and 2^64 written out with ".0": PostgreSQL gives 1e16 back as an integer."""
    if isinstance(node, float) and 1e16 <= abs(node) < 2.0**64:
        return orjson.Fragment(f"{int(node)}.0".encode())
    if isinstance(node, dict):
        parts = {key: _spelled(part) for key, part in node.items()}
        return parts if any(parts[key] is not node[key] for key in node) else node
    if isinstance(node, list):
        items = [_spelled(part) for part in node]
        return items if any(a is not b for a, b in zip(items, node, strict=True)) else node
    return node


def _key(path: str, key: object) -> str:
    if type(key) is not str:
        _refuse(path, f"has a key of type {type(key).__name__}; JSON keys are text")
    text = str(key)
    _text(f"a key of {path}", text)
    # A path names where, and a long key may be content.
    return text if len(text) <= 64 else text[:61] + "..."


def _text(path: str, text: str) -> None:
    if text.isascii():
        if "\x00" in text:
            _refuse(path, "holds NUL (U+0000), which PostgreSQL can't store")
        return
    if not encodable(text):
        _refuse(path, "holds a lone surrogate, which is not valid Unicode text")
    if "\x00" in text:
        _refuse(path, "holds NUL (U+0000), which PostgreSQL can't store")


def _deeper(path: str, depth: int) -> None:
    if depth >= DEPTH_LIMIT:
        # The whole path would be as long as the nesting is deep.
        _refuse(path[:200], f"is nested deeper than {DEPTH_LIMIT} levels")


def _refuse(path: str, why: str) -> NoReturn:
    raise InvalidRequest(f"{path} {why}", field=path)
