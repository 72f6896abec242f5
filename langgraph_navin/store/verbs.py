"""LangGraph's ten verbs, as one operation each.

`BaseStore` has them too, but checks namespaces by rules that can't be widened (no dots) before a store is asked. Here
nothing is checked but what `batch` checks, so that a verb and a raw operation are refused alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Literal, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)

from ..operations import Answer
from .words import result

Namespace = tuple[str, ...]


class Verbs(BaseStore):
    """The verbs over `batch` and `abatch`. Their meaning is LangGraph's: see `BaseStore`."""

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        return cast("Item | None", self.batch([self._get(namespace, key, refresh_ttl)])[0])

    async def aget(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        op = self._get(namespace, key, refresh_ttl)
        return cast("Item | None", result(op, await self._alone(op)))

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        op = SearchOp(namespace_prefix, filter, limit, offset, query, self._refresh(refresh_ttl))
        return cast("list[SearchItem]", self.batch([op])[0])

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        op = SearchOp(namespace_prefix, filter, limit, offset, query, self._refresh(refresh_ttl))
        return cast("list[SearchItem]", result(op, await self._alone(op)))

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        self.batch([self._put_op(namespace, key, value, index, ttl)])

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        await self._alone(self._put_op(namespace, key, value, index, ttl))

    def delete(self, namespace: Namespace, key: str) -> None:
        self.batch([PutOp(namespace, str(key), None)])

    async def adelete(self, namespace: Namespace, key: str) -> None:
        await self._alone(PutOp(namespace, str(key), None))

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        return cast("list[Namespace]", self.batch([_listing(prefix, suffix, max_depth, limit, offset)])[0])

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        op = _listing(prefix, suffix, max_depth, limit, offset)
        return cast("list[Namespace]", result(op, await self._alone(op)))

    def _alone(self, op: Op) -> Awaitable[Answer]:
        """One operation, as `abatch` of it alone. To be awaited at once: whose it is was read in this call."""
        raise NotImplementedError

    # --- as operations ----------------------------------------------------------------------------------------

    def _get(self, namespace: Namespace, key: str, refresh_ttl: bool | None) -> GetOp:
        # LangGraph's stores take a key that isn't text by its text, in both colours.
        return GetOp(namespace, str(key), self._refresh(refresh_ttl))

    def _put_op(self, namespace: Namespace, key: str, value: Mapping[str, Any], index: Any, ttl: float | NotProvided | None) -> PutOp:
        if isinstance(ttl, NotProvided):
            ttl = (self.ttl_config or {}).get("default_ttl")
        return PutOp(namespace, str(key), value, index=index, ttl=ttl)

    def _refresh(self, refresh_ttl: bool | None) -> bool:
        return (self.ttl_config or {}).get("refresh_on_read", True) if refresh_ttl is None else refresh_ttl


def _listing(
    prefix: NamespacePath | None, suffix: NamespacePath | None, max_depth: int | None, limit: int, offset: int
) -> ListNamespacesOp:
    conditions = [MatchCondition("prefix", prefix)] if prefix else []
    conditions += [MatchCondition("suffix", suffix)] if suffix else []
    return ListNamespacesOp(tuple(conditions), max_depth, limit, offset)
