"""The first label of a namespace picks the scope, and the default policy decides about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from langgraph.store.base import GetOp, PutOp

from langgraph_navin.errors import NavinError, PolicyDenied
from store_subjects import Do, Namespace, navin_only

pytestmark = navin_only

SHARED: list[Namespace] = [
    ("team", "x"),
    ("project", "p", "notes"),
    ("shared_agents", "a"),
    ("organization", "o"),
    ("global", "g"),
]


@pytest.mark.parametrize("namespace", SHARED, ids="/".join)
async def test_sharing_is_off_by_default(do: Do, namespace: Namespace, subtests: pytest.Subtests) -> None:
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: do.put(namespace, "k", {"secret": "mango"}),
        "get": lambda: do.get(namespace, "k"),
        "delete": lambda: do.delete(namespace, "k"),
        "search": lambda: do.search(namespace),
    }
    for verb, attempt in attempts.items():
        with subtests.test(verb):
            with pytest.raises(PolicyDenied) as refused:
                await attempt()
            _names_its_rule(refused.value)


def _names_its_rule(error: PolicyDenied) -> None:
    assert isinstance(error, NavinError)
    assert isinstance(error, PermissionError)
    assert error.details["rule"]
    assert str(error.details["rule"]) in str(error)
    assert "mango" not in str(error)


async def test_a_refused_op_leaves_its_batch_unwritten(do: Do) -> None:
    with pytest.raises(PolicyDenied):
        await do.batch([PutOp(("notes",), "k", {"n": 1}), GetOp(("notes",), "k"), PutOp(("team", "x"), "k", {"n": 1})])
    assert await do.get(("notes",), "k") is None
    assert await do.search(()) == []


@pytest.mark.parametrize("namespace", [("user", "u-42", "likes"), ("session", "s-1"), ("agent", "default")], ids="/".join)
async def test_the_default_scopes_are_open(do: Do, namespace: Namespace) -> None:
    await do.put(namespace, "k", {"n": 1})
    item = await do.must_get(namespace, "k")
    assert item.namespace == namespace
    assert [found.namespace for found in await do.search(namespace)] == [namespace]
    assert await do.list_namespaces() == [namespace]
    await do.delete(namespace, "k")
    assert await do.list_namespaces() == []


@pytest.mark.parametrize("root", ["teams", "Team", "users", "USER", "memories", "notes", "team ", "-"])
async def test_any_other_first_label_is_free(do: Do, root: str) -> None:
    await do.put((root, "x"), "k", {"n": 1})
    assert (await do.must_get((root, "x"), "k")).namespace == (root, "x")


async def test_a_scope_and_its_namesake_never_meet(do: Do) -> None:
    await do.put(("user", "-"), "k", {"at": "scope"})
    await do.put(("notes", "user", "-"), "k", {"at": "free"})
    await do.put(("notes",), "k", {"at": "root"})
    assert (await do.must_get(("user", "-"), "k")).value == {"at": "scope"}
    assert sorted(item.value["at"] for item in await do.search(("notes",))) == ["free", "root"]
    assert len(await do.search(())) == 3
