"""Many tenants at once through few server connections, and what they must never see: each other.

Every tenant uses the same namespaces and keys and writes its own name into the values, so that whatever reaches a
wrong tenant is a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from langgraph.store.base import GetOp, PutOp

from langgraph_navin import Navin
from saver_subjects import Do as Sessions
from saver_subjects import put_arguments, thread
from store_subjects import Do, Subject, indexed

TENANTS = [f"tenant-{n}" for n in range(6)]
#: Visitors at once; two of each tenant.
VISITORS = 12

T = TypeVar("T")


@dataclass
class Visitor:
    """Uses every verb of one tenant's store and sessions, and notes each answer that isn't what this tenant wrote."""

    navin: Navin
    colour: str
    tenant: str
    name: str
    asked: int = 0
    wrong: list[str] = field(default_factory=list)

    def saw(self, what: str, found: object, expected: object) -> None:
        self.asked += 1
        if found != expected:
            self.wrong.append(f"{self.tenant} {what}")

    async def stay(self, rounds: int) -> None:
        for n in range(rounds):
            await self.remember(n)
            await self.resume(n)

    async def remember(self, n: int) -> None:
        do, ns = Do(Subject.parse(f"navin-{self.colour}"), self.navin.store), ("user", self.name, "notes")
        value = {"tenant": self.tenant, "n": n, "text": f"tea for {self.tenant} in round {n}"}
        await do.put(ns, "k", value)
        # Each read prolongs a life: it writes too.
        self.saw("get", (await do.must_get(ns, "k")).value, value)
        await do.batch([PutOp(ns, "a", value), PutOp(ns, "b", value)])
        got = await do.batch([GetOp(ns, "a"), GetOp(ns, "b"), GetOp(ns, "never")])
        self.saw("batch", [item and item.value for item in got], [value, value, None])  # type: ignore[union-attr]
        self.saw("filter", [i.value for i in await do.search(ns[:2], filter={"n": n})], [value] * 3)
        self.saw("words and vectors", [i.value for i in await do.search(ns, query="tea")], [value] * 3)
        self.saw("namespaces", await do.list_namespaces(prefix=ns[:2]), [ns])
        await do.delete(ns, "k")
        self.saw("delete", await do.get(ns, "k"), None)

    async def resume(self, n: int) -> None:
        do, told = Sessions(self.navin.checkpointer, self.colour), {"said": [self.tenant, n]}  # type: ignore[arg-type]
        config = thread()
        saved = await do("put", config, *put_arguments(do.saver, **told))
        await do("put_writes", saved, [("said", [self.tenant])], "task")
        newest = await do("get_tuple", config)
        self.saw("session", newest.checkpoint["channel_values"], told)
        self.saw("session's writes", newest.pending_writes, [("task", "said", [self.tenant])])
        self.saw("sessions", [found.config for found in await do.list(config)], [saved])


def finished(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing: verbs in the sync colour, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a sync verb waited")


def _on_threads(visitors: list[Visitor], rounds: int) -> None:
    with ThreadPoolExecutor(VISITORS) as threads:
        list(threads.map(lambda visitor: finished(visitor.stay(rounds)), visitors))


def _as_tasks(visitors: list[Visitor], rounds: int) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(*(visitor.stay(rounds) for visitor in visitors))

    asyncio.run(all_at_once())


_TOGETHER: dict[str, Callable[[list[Visitor], int], None]] = {"sync": _on_threads, "async": _as_tasks}


def crowd(dsn: str, colour: str, rounds: int, **settings: Any) -> tuple[int, list[str]]:
    """How many answers twelve visitors of six tenants compared, and those that were wrong. `settings` are `Navin.open`'s."""
    with ExitStack() as stack:
        options = {"index": indexed("text"), "ttl": {"default_ttl": 60}, "connections": 4, **settings}
        navins = {tenant: stack.enter_context(Navin.open(dsn, tenant=tenant, **options)) for tenant in TENANTS}
        # Asked for here, since it blocks as it looks for its tables: no event loop should stand still meanwhile.
        assert all(navin.checkpointer is not None for navin in navins.values())
        visitors = [Visitor(navins[tenant], colour, tenant, f"u{n // 6}") for n, tenant in enumerate(TENANTS * 2)]
        _TOGETHER[colour](visitors, rounds)
        return sum(visitor.asked for visitor in visitors), [wrong for visitor in visitors for wrong in visitor.wrong]


def left_behind(dsn: str) -> dict[str, Any]:
    """What a stranger finds on the next server connection that isn't the server's own default."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        changed = connection.execute("select name, setting from pg_settings where source = 'session' and name <> 'application_name'")
        ours = connection.execute("""
            select current_user = session_user, current_setting('role'), coalesce(current_setting('navin.tenant', true), ''),
              coalesce(current_setting('navin.parts', true), ''), coalesce(current_setting('navin.who', true), ''),
              (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
              (select count(*) from pg_prepared_statements)
            """).fetchone()
        assert ours is not None
        names = ["own role", "role", "tenant", "parts", "who", "advisory locks", "prepared statements"]
        return dict(changed.fetchall()) | dict(zip(names, ours, strict=True))


#: `left_behind` on a connection that nobody has used.
NOTHING = {"own role": True, "role": "none", "tenant": "", "parts": "", "who": "", "advisory locks": 0, "prepared statements": 0}
