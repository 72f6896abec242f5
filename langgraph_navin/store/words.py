"""LangGraph's operations as the contract's, and answers the way back. Everything is checked here, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast

from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, Result, SearchItem, SearchOp

from ..errors import InvalidRequest
from ..filters import parse
from ..items import MemoryItem, new_id
from ..operations import Answer, Forget, Get, Index, ListItems, ListNamespaces, Operation, Pattern, Remember, Search
from ..scopes import check_key, check_labels, check_namespace, encodable
from ..settings import TTL_LIMIT
from ..values import decode, encode

#: What can't change under whoever reads it later.
_PLAIN = frozenset({str, int, float, bool, NoneType})
#: Where LangGraph says "no limit".
_UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Words:
    """How this store reads LangGraph's words: `dots` allows them in labels."""

    dots: bool = False

    def operation(self, op: Op) -> Operation:
        """The operation that a LangGraph op asks for; raises `InvalidRequest` for one that can't be right."""
        match op:
            case GetOp():
                return Get(check_namespace(op.namespace, dots=self.dots), check_key(op.key), bool(op.refresh_ttl))
            case SearchOp():
                return self._search(op)
            case PutOp():
                return self._put(op)
            case ListNamespacesOp():
                return self._list(op)
        raise InvalidRequest(f"ops: {type(op).__name__} is not an operation of a LangGraph store", field="ops")

    def _put(self, op: PutOp) -> Operation:
        namespace, key = check_namespace(op.namespace, dots=self.dots), check_key(op.key)
        if op.value is None:
            return Forget(namespace, key)
        # LangGraph allows any mapping.
        document = dict(op.value) if type(op.value) is dict or isinstance(op.value, Mapping) else op.value
        # The application may go on changing its dict; what was checked is what is written, and what is found.
        value = encode(document)
        if not _PLAIN.issuperset(map(type, document.values())):
            document = decode(value)
        return Remember(
            namespace,
            key,
            value,
            item_id=new_id(),
            document=document,
            index=_index(op.index),
            ttl=_seconds(op.ttl),
            wanted=False,
        )

    def _search(self, op: SearchOp) -> Operation:
        prefix, where = check_labels(op.namespace_prefix, dots=self.dots), parse(op.filter)
        limit, offset, refresh = _count("limit", op.limit), _count("offset", op.offset), bool(op.refresh_ttl)
        if op.query is not None and not isinstance(op.query, str):
            raise InvalidRequest(f"query must be text, got {type(op.query).__name__}", field="query")
        if op.query and ("\x00" in op.query or not encodable(op.query)):
            raise InvalidRequest("query must not hold NUL or a lone surrogate", field="query")
        if op.query:
            return Search(prefix, op.query, where, limit, offset, refresh)
        return ListItems(prefix, where, limit, offset, refresh)

    def _list(self, op: ListNamespacesOp) -> Operation:
        patterns: dict[str, list[Pattern]] = {"prefix": [], "suffix": []}
        for condition in op.match_conditions or ():
            patterns[_match_type(condition)].append(check_labels(condition.path, dots=self.dots))
        depth = op.max_depth
        if depth is not None and _count("max_depth", depth) < 1:
            raise InvalidRequest("max_depth must be 1 or more, or None", field="max_depth")
        limit, offset = _count("limit", op.limit), _count("offset", op.offset)
        return ListNamespaces(tuple(patterns["prefix"]), tuple(patterns["suffix"]), depth, limit, offset)


def _match_type(condition: MatchCondition) -> str:
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidRequest('match_type must be "prefix" or "suffix"', field="match_type")
    return condition.match_type


def _index(index: Any) -> Index:
    if index is None or index is False:
        return cast(Index, index)
    if isinstance(index, str) or not isinstance(index, Sequence) or not all(isinstance(path, str) for path in index):
        raise InvalidRequest("index must be False, None or a list of paths such as ['title', 'notes[*].text']", field="index")
    return tuple(index)


def _seconds(ttl: Any) -> float | None:
    """LangGraph's minutes."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl <= TTL_LIMIT:
        raise InvalidRequest(f"ttl must be a number of minutes above 0 and up to {TTL_LIMIT:.0f}, or None for no expiry", field="ttl")
    return 60.0 * ttl


def _count(name: str, number: Any) -> int:
    if number is None:
        return _UNLIMITED if name == "limit" else 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidRequest(f"{name} must be a whole number, 0 or more", field=name)
    return min(number, _UNLIMITED)


def result(op: Op, answer: Answer) -> Result:
    """An answer in LangGraph's words."""
    match op, answer:
        case GetOp(), MemoryItem() as found:
            return Item(
                value=found.value, key=found.key, namespace=found.namespace, created_at=found.created_at, updated_at=found.updated_at
            )
        case SearchOp(), list():
            return [_hit(found) for found in cast("list[MemoryItem]", answer)]
        case ListNamespacesOp(), list():
            return cast("list[tuple[str, ...]]", answer)
    return None


def _hit(found: MemoryItem) -> SearchItem:
    return SearchItem(found.namespace, found.key, found.value, found.created_at, found.updated_at, found.score)
