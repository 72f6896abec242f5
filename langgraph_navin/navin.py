"""The composition root: the only room that knows every name.

`Navin.open()` puts together a server (embedded, or yours), its schema, the builtin engine, the service, and the two
things that LangGraph takes: a store and a checkpointer.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Self, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import TTLConfig, ensure_embeddings

from .callers import Caller
from .drive import arun, run
from .engines.builtin import schema
from .engines.builtin.connections import Connections
from .engines.builtin.embedded import EmbeddedServer
from .engines.builtin.engine import BuiltinEngine
from .engines.builtin.faults import wrong_dims
from .engines.builtin.session import Model, configure
from .engines.builtin.writing import Index
from .errors import InvalidRequest, Unsupported
from .maintenance import Maintenance
from .operations import Answer, GetCapabilities, GetHealth, Operation, check
from .policies.model import Policy, PolicyVersion
from .scopes import NamespaceMap, rules
from .service import OnePolicy, Service
from .settings import IndexSettings, Settings, load
from .store import Coalescer, Identity, NavinStore

logger = logging.getLogger("langgraph_navin")


#: Seconds that `close()` waits for a round of maintenance to end. What it leaves undone, the next one does.
CLOSING = 10.0


class Navin:
    """A governed memory and durable sessions for LangGraph: `compile(store=navin.store, checkpointer=navin.checkpointer)`.

    Use it as `with`, as `async with`, or keep it for the life of a module and call `close()`. One object serves any
    number of threads and event loops, sync and async.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._server: EmbeddedServer | None = None
        _check_policy(settings.policy)
        self._saver: BaseCheckpointSaver[Any] | None = None
        # What can be refused is, before a server is started.
        index, namespaces = _index(settings.index), NamespaceMap(rules(settings.namespaces))
        Caller(settings.tenant, agent_id=settings.agent)
        if settings.admin_dsn is not None and settings.dsn is None:
            raise InvalidRequest("admin_dsn: needs dsn, the same database as the application's role", field="admin_dsn")
        dsn = settings.dsn or self._embedded()
        self._admin_dsn = settings.admin_dsn or dsn
        self._connections = Connections(dsn, cap=settings.connections, prepare=settings.prepare, configure=configure)
        self._upkeep = Connections(self._admin_dsn, cap=1, prepare=settings.prepare, configure=configure)
        self._engine = BuiltinEngine(self._connections, index)
        self._maintenance = Maintenance(BuiltinEngine(self._upkeep), *_interval(settings))
        version = PolicyVersion(policy=settings.policy)
        self._service = Service(self._engine, OnePolicy(version), namespaces)
        self._together = Coalescer(self._service)
        atexit.register(self.close)

    @classmethod
    def open(
        cls,
        dsn: str | None = None,
        *,
        admin_dsn: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        tenant: str | None = None,
        agent: str | None = None,
        index: Any = None,
        ttl: Any = None,
        require_caller: bool | None = None,
        checkpoints: str | None = None,
        serde_types: Iterable[type | tuple[str, str]] | None = None,
        namespaces: Sequence[tuple[Sequence[str], str]] | None = None,
        labels: str | None = None,
        policy: Any = None,
        connections: int | None = None,
        prepare: bool | None = None,
        config: str | os.PathLike[str] | None = None,
    ) -> Navin:
        """Open a memory, creating its schema where it isn't there yet.

        Args:
            dsn: a PostgreSQL 15 or newer, such as "postgresql://user:password@host/db". Without one, a private
                PostgreSQL starts in `data_dir` (needs `langgraph-navin[embedded]`).
            admin_dsn: the same database as a role that may create schema and roles; default `dsn`.
            data_dir: where the private PostgreSQL lives; default ".navin".
            tenant, agent: whose memories these are under application identity; default "default".
            index: LangGraph's `{"dims": …, "embed": …, "fields": […]}`: search by meaning, besides words.
            ttl: LangGraph's `{"default_ttl": minutes, "refresh_on_read": bool}`.
            require_caller: refuse operations without a verified caller (`acting_as`, `store.bound`).
            checkpoints: reserved; sessions are kept in the store's PostgreSQL.
            serde_types: classes besides the graph's own that checkpoints may hold.
            namespaces: rules such as `[(("memories", "{user_id}"), "user")]`: which label names a scope's member.
            labels: "any" allows dots in namespace labels.
            policy: a `Policy`, or its fields as a dict.
            connections: to PostgreSQL at most; default 16.
            prepare: statements. By default where PostgreSQL itself answers, not where a pooler does; True is for a pooler
                that keeps them, such as pgbouncer 1.21 with `max_prepared_statements`.
            config: a TOML file with any of these; the order of precedence is in `settings`.

        Raises:
            InvalidRequest: a setting that can't be right.
            EngineUnavailable: the server doesn't answer or can't be started, or its schema isn't ours to use.
            Unsupported: `index` was given and the server has no pgvector.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("cls", "config")}
        return cls._prepared(load(arguments, config=config))

    @classmethod
    def _prepared(cls, settings: Settings) -> Navin:
        navin = cls(settings)
        try:
            navin.setup()
        except BaseException:
            navin.close()
            raise
        return navin

    @classmethod
    def unprepared(cls, **arguments: Any) -> Navin:
        """As `open`, without touching the server: `setup()` is left to the caller."""
        return cls(load(arguments))

    # --- what LangGraph takes ---------------------------------------------------------------------------------

    @property
    def store(self) -> NavinStore:
        """The long-term memory, for `compile(store=…)`."""
        return self._store_for(self._settings.agent)

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]:
        """The sessions, for `compile(checkpointer=…)`. Its tables are made when it is first asked for."""
        with self._lock:
            if self._saver is None:
                self._saver = self._make_saver()
            return self._saver

    def agent(self, name: str) -> Agent:
        """The same memory, as another agent of the tenant sees it under that agent's policy."""
        return Agent(self, name)

    def _store_for(self, agent: str) -> NavinStore:
        settings, identity = self._settings, self._identity(agent)
        return NavinStore(self._service, identity, ttl=_ttl(settings), dots=settings.labels == "any", owner=self, together=self._together)

    def _identity(self, agent: str) -> Identity:
        application = Caller(tenant_id=self._settings.tenant, agent_id=agent, verified=False)
        return Identity(agent, None if self._settings.require_caller else application)

    @property
    def isolation(self) -> str:
        """The separation that this server was found to guarantee (contract 2): "enforced", or "logical"."""
        return self._service.isolation

    def health(self) -> dict[str, Any]:
        """Whether the engine answers. Reaches it."""
        return cast("dict[str, Any]", self.perform(GetHealth()))

    def capabilities(self) -> dict[str, Any]:
        """What the engine announces to this caller (contract 2). Reaches nothing."""
        return cast("dict[str, Any]", self.perform(GetCapabilities()))

    def perform(self, operation: Operation) -> Answer:
        """Carry out one of the contract's operations (`operations`)."""
        check(operation)
        return run(self._service.steps([operation], self._identity(self._settings.agent).caller()))[0]

    async def aperform(self, operation: Operation) -> Answer:
        """As `perform`."""
        check(operation)
        return (await arun(self._service.steps([operation], self._identity(self._settings.agent).caller())))[0]

    @property
    def maintenance(self) -> Maintenance:
        """The background sweep and compaction."""
        return self._maintenance

    def __repr__(self) -> str:
        where = "embedded" if self._server is not None else "postgresql"
        return f"<Navin {where}, tenant {self._settings.tenant!r}, agent {self._settings.agent!r}>"

    # --- life -------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Create or upgrade the schema, and check that this server can do what was asked. Safe to repeat."""
        with self._connections.connection() as connection:
            state = schema.found(connection)
        if not state.current:
            state = schema.migrate(self._admin_dsn)
        self._check_vectors(state)
        with self._connections.connection() as connection:
            self._service.isolation = schema.isolation(connection)
            self._check_dims(connection, state)
        self._start_maintenance()

    async def asetup(self) -> None:
        """As `setup`."""
        await asyncio.to_thread(self.setup)

    def _check_vectors(self, state: schema.State) -> None:
        if self._settings.index is not None and not state.has_vectors:
            raise Unsupported(
                "index: this PostgreSQL has no pgvector, so nothing can be searched by meaning: install the extension and have a "
                "database administrator run `create extension vector`, or open without index= to search by words",
                field="index",
            )
        if state.vector_schema is not None:
            self._engine.use_vectors(state.vector_schema)

    def _check_dims(self, connection: Any, state: schema.State) -> None:
        if self._settings.index is None:
            return
        known = connection.execute("select navin.space_of(%s)", (self._settings.tenant,)).fetchone()[0]
        if known is not None and known != self._settings.index.dims:
            raise wrong_dims(known, self._settings.index.dims)

    def _start_maintenance(self) -> None:
        with self._upkeep.connection() as connection:
            allowed = schema.may_maintain(connection)
        if allowed:
            self._maintenance.start()
        else:
            logger.info("this role isn't a member of navin_maintenance: run `navin maintain` with one that is, or pass admin_dsn")

    def _embedded(self) -> str:
        self._server = EmbeddedServer(self._settings.data_dir)
        return self._server.start()

    def _make_saver(self) -> BaseCheckpointSaver[Any]:
        if self._settings.checkpoints is not None:
            raise InvalidRequest(
                "checkpoints: only the store's own PostgreSQL is supported; leave it out, or compile with another checkpointer",
                field="checkpoints",
            )
        if self._settings.require_caller:
            raise Unsupported(
                "checkpointer: sessions aren't separated by caller yet, so require_caller=True has none: compile with a checkpointer "
                "of your own, or open a second Navin without require_caller for it",
                field="checkpointer",
            )
        from .saver import NavinSaver

        NavinSaver(self._upkeep).setup()
        if self._settings.admin_dsn is not None:
            with self._upkeep.connection() as connection:
                schema.share_checkpoints(connection)
        return cast("BaseCheckpointSaver[Any]", NavinSaver(self._connections, serde_types=self._settings.serde_types))

    def close(self) -> None:
        """End connections, maintenance and, as its last user, the embedded server. Safe to repeat."""
        atexit.unregister(self.close)
        self._maintenance.stop(CLOSING)
        self._upkeep.close()
        self._connections.close()
        if self._server is not None:
            self._server.stop()

    async def aclose(self) -> None:
        """As `close`."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class Agent:
    """One agent's view of a `Navin`."""

    def __init__(self, navin: Navin, name: str) -> None:
        self._navin = navin
        self.store = navin._store_for(name)

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]:
        """The sessions."""
        return self._navin.checkpointer


#: Rules that this version can't keep. A rule that is set and not kept is worse than none.
_NOT_YET = (
    *("engine", "allow_personal_data", "retention_days", "legal_hold", "infer", "candidates"),
    *("shared_with", "global_access", "recall_top_k", "recall_held"),
)


def _check_policy(policy: Policy) -> None:
    for name in _NOT_YET:
        if getattr(policy, name) != Policy.model_fields[name].get_default(call_default_factory=True):
            raise Unsupported(f"policy.{name}: this version doesn't enforce it yet; leave it out", field=f"policy.{name}")


def _index(settings: IndexSettings | None) -> Index:
    if settings is None:
        return Index()
    try:
        if not (isinstance(settings.embed, str) or callable(settings.embed) or hasattr(settings.embed, "embed_documents")):
            raise TypeError(type(settings.embed).__name__)
        embeddings = ensure_embeddings(settings.embed)
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidRequest(
            f'index.embed must be an Embeddings, a function from texts to vectors, or "provider:model" ({type(error).__name__}: '
            "for a name, is `langchain` and the provider's package installed?)",
            field="index.embed",
        ) from error
    fields = ("$",) if settings.fields is None else settings.fields
    return Index(fields, Model(embeddings, settings.dims), settings.distance_type)


def _ttl(settings: Settings) -> TTLConfig | None:
    return None if settings.ttl is None else cast(TTLConfig, settings.ttl.model_dump(exclude_none=True))


def _interval(settings: Settings) -> tuple[float, ...]:
    minutes = settings.ttl.sweep_interval_minutes if settings.ttl else None
    return () if minutes is None else (60 * minutes,)
