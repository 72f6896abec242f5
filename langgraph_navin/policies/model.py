"""The policy of an agent: what it may remember, read and share (contract 5)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from ..capabilities import Isolation
from ..items import KINDS, Classification, Kind
from ..scopes import Mode, Scope

EngineChoice: TypeAlias = Literal["builtin", "mem0", "cognee", "hybrid"]
CandidateRule: TypeAlias = Literal["confirm", "automatic", "never"]

_DEFAULT_SCOPES: frozenset[Scope] = frozenset({"session", "user", "agent"})


class Policy(BaseModel):
    """The rules of one agent in one tenant. An agent without one has version 0: all defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineChoice = "builtin"
    modes: frozenset[Mode] = frozenset({"session", "long_term", "agent"})
    write_scopes: frozenset[Scope] = _DEFAULT_SCOPES
    read_scopes: frozenset[Scope] = _DEFAULT_SCOPES
    default_scope: Scope = "user"
    allowed_kinds: frozenset[Kind] = frozenset(KINDS)
    max_classification: Classification = "confidential"
    allow_personal_data: bool = True
    retention_days: Annotated[float, Field(gt=0)] | None = None
    legal_hold: bool = False
    infer: bool = False
    candidates: dict[Kind, CandidateRule] = Field(default_factory=dict)
    shared_with: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    global_access: bool = False
    required_isolation: Isolation = "logical"
    recall_top_k: Annotated[int, Field(ge=1, le=200)] = 8
    recall_held: bool = False


class PolicyVersion(BaseModel):
    """A policy with its version, and the tenant's epoch at which it was read."""

    model_config = ConfigDict(frozen=True)

    policy: Policy
    version: int = 0
    epoch: int = 0
