"""The contract as pydantic models: what stands in `contracts/v1/memory-provider.schema.json` (contract 2, 6).

Requests, responses and records as they cross a wire. The core works with the dataclasses of `operations` and `items`;
a door translates.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .capabilities import Capability, Isolation, KnowledgeCapability, MemoryCapability
from .items import Classification, Kind
from .policies.model import EngineChoice, Policy
from .scopes import Scope

Provider = Literal["builtin", "mem0", "cognee"]
Importance = Annotated[int, Field(ge=1, le=10)]
TopK = Annotated[int, Field(ge=1, le=200)]
Query = Annotated[str, Field(min_length=1)]
Days = Annotated[float, Field(gt=0)]
SearchType = Literal["CHUNKS", "CHUNKS_LEXICAL", "SUMMARIES", "RAG_COMPLETION", "GRAPH_COMPLETION"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Context(Model):
    """Who an operation is done for. Built by the server from a verified identity."""

    tenant_id: str
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    teams: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    trace: str | None = None
    request_id: str | None = None


class Announcement(Model):
    """What an engine instance can do."""

    schema_version: Literal["1.0"] = "1.0"
    provider: Provider
    engine_instance: str
    capabilities: tuple[Capability, ...]
    memory: tuple[MemoryCapability, ...]
    knowledge: tuple[KnowledgeCapability, ...]


class CapabilitiesView(Announcement):
    """An announcement as a caller reads it."""

    isolation: Isolation
    session_memory: bool


class EngineInstance(Model):
    """One reachable engine."""

    id: str
    provider: Literal["mem0", "cognee"]
    base_url: str
    tenant_id: str | None = None
    credential_ref: Annotated[str, Field(pattern="^(openbao|env)://")] | None = None
    access_control: bool = False
    tls_verify: bool = True
    timeout_seconds: Annotated[float, Field(gt=0)] = 30
    manager_cluster: str | None = None
    manager_service: str | None = None


class AgentPolicy(Model):
    """A policy on the wire."""

    engine: EngineChoice = "builtin"
    mem0_instance: str | None = None
    cognee_instance: str | None = None
    policy: Policy = Field(default_factory=Policy)


class MemoryItem(Model):
    """One memory. Its `value` is what was written; everything else governs it."""

    id: str
    scope: Scope
    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any] | None = None
    content: str | None = None
    kind: Kind
    classification: Classification
    importance: Importance | None = None
    source: dict[str, Any] | None = None
    version: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None


class RememberRequest(Model):
    content: str | None = None
    value: dict[str, Any] | None = None
    scope: Scope | None = None
    kind: Kind = "fact"
    classification: Classification = "internal"
    importance: Importance | None = None
    session_id: str | None = None
    team: str | None = None
    retention_days: Days | None = None
    legal_hold: bool = False
    source: dict[str, Any] | None = None
    derived_from: tuple[str, ...] = ()
    key: str | None = None
    namespace: tuple[str, ...] | None = None
    idempotency_key: str | None = None
    redact: bool = False


class ItemRequest(Model):
    """An item by its id, or by namespace and key."""

    item_id: str | None = None
    namespace: tuple[str, ...] | None = None
    key: str | None = None


class UpdateRequest(Model):
    item_id: str
    content: str | None = None
    value: dict[str, Any] | None = None
    expected_version: int | None = None


class Receipt(Model):
    """What forgetting and purging did: `accepted` first, `proven` when nothing is left."""

    state: Literal["accepted", "proven"]
    found: bool
    item_id: str | None = None
    erased_from: tuple[str, ...] = ()
    residue: tuple[str, ...] = ()


class ListRequest(Model):
    scope: Scope | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: str | None = None
    include_content: bool = False


class Page(Model):
    items: tuple[MemoryItem, ...]
    cursor: str | None = None


class SearchRequest(Model):
    query: Query
    scopes: tuple[Scope, ...] | None = None
    top_k: TopK | None = None
    filter: dict[str, Any] | None = None
    session_id: str | None = None


class RecallRequest(Model):
    query: Query
    scopes: tuple[Scope, ...] | None = None
    top_k: TopK | None = None
    session_id: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    partial: bool = False


class Recall(Model):
    """Recalled items, and the same as text that is framed as untrusted data."""

    items: tuple[MemoryItem, ...]
    text: str
    missing: tuple[str, ...] = ()


class PurgeRequest(Model):
    scope: Scope
    confirm: bool = False
    team: str | None = None
    session_id: str | None = None


class IngestRequest(Model):
    texts: Annotated[tuple[str, ...], Field(min_length=1, max_length=50)]
    scope: Scope = "agent"
    team: str | None = None
    dataset_id: str | None = None
    classification: Classification = "internal"
    retention_days: Days | None = None
    legal_hold: bool = False
    build_graph: bool = False


class Dataset(Model):
    """A body of ingested knowledge."""

    id: str
    scope: Scope
    classification: Classification
    built: bool
    created_at: datetime


class BuildGraphRequest(Model):
    dataset_ids: Annotated[tuple[str, ...], Field(min_length=1)]


class SearchGraphRequest(Model):
    query: Query
    dataset_ids: tuple[str, ...] | None = None
    top_k: TopK = 10
    search_type: SearchType = "CHUNKS"


class Relation(Model):
    """An edge between two entities of a dataset."""

    source: str
    relation: str
    target: str


class Health(Model):
    engine: str
    status: Literal["ok", "unavailable"]


class AuditEvent(Model):
    """One decision. Ids and commitments, never content, keys or namespaces."""

    seq: int
    at: datetime
    tenant_id: str
    actor: str
    agent_id: str
    op: str
    allowed: bool
    rule: str | None = None
    policy_version: int
    trace: str | None = None
    item_id: str | None = None
    version: int | None = None
    digest: str | None = None


class Error(Model):
    """What went wrong, in the same code at every door."""

    code: Annotated[str, Field(pattern="^memory_[a-z_]+$")]
    status: int
    message: str
    details: dict[str, str | int | float | bool | list[str] | None] = Field(default_factory=dict)


#: `$defs` of the contract's schema, by the contract's names.
DEFINITIONS: dict[str, type[BaseModel]] = {
    "agent_policy": AgentPolicy,
    "announcement": Announcement,
    "audit_event": AuditEvent,
    "build_graph_request": BuildGraphRequest,
    "capabilities_view": CapabilitiesView,
    "context": Context,
    "dataset": Dataset,
    "engine_instance": EngineInstance,
    "error": Error,
    "health": Health,
    "ingest_knowledge_request": IngestRequest,
    "item_request": ItemRequest,
    "list_request": ListRequest,
    "memory_item": MemoryItem,
    "page": Page,
    "policy": Policy,
    "purge_request": PurgeRequest,
    "recall": Recall,
    "recall_request": RecallRequest,
    "receipt": Receipt,
    "relation": Relation,
    "remember_request": RememberRequest,
    "search_graph_request": SearchGraphRequest,
    "search_request": SearchRequest,
    "update_request": UpdateRequest,
}
