"""What an engine announces it can do (contract 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

from .errors import Unsupported

MemoryCapability: TypeAlias = Literal[
    "remember", "recall", "search", "update", "forget", "list", "get", "purge", "get_health", "get_capabilities"
]
KnowledgeCapability: TypeAlias = Literal["ingest_knowledge", "build_graph", "search_graph", "get_relations", "delete_dataset"]
Capability: TypeAlias = MemoryCapability | KnowledgeCapability
Isolation: TypeAlias = Literal["logical", "credential", "enforced", "dedicated"]

MEMORY: tuple[MemoryCapability, ...] = get_args(MemoryCapability)
KNOWLEDGE: tuple[KnowledgeCapability, ...] = get_args(KnowledgeCapability)
#: Rising separation (contract 2).
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)

SCHEMA_VERSION = "1.0"

#: What each kind of engine announces by the contract; the reason given where something isn't announced.
PROVIDERS: Mapping[str, frozenset[str]] = {
    "builtin": frozenset(MEMORY),
    "mem0": frozenset(MEMORY),
    "cognee": frozenset({"forget", "list", "purge", "get_health", "get_capabilities", *KNOWLEDGE}),
}


def require(engine: str, announced: Iterable[str], capability: str) -> None:
    """Raise `Unsupported`, naming the engine and who could, unless the capability is announced."""
    if capability in announced:
        return
    able = [name for name, can in PROVIDERS.items() if capability in can]
    raise Unsupported(
        f"engine {engine!r} doesn't announce {capability!r}; it is announced by: {', '.join(able) or 'no engine'}",
        engine=engine,
        capability=capability,
    )
