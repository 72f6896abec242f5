"""The LangGraph door."""

from __future__ import annotations

from .coalesce import Coalescer
from .store import Identity, NavinStore

__all__ = ["Coalescer", "Identity", "NavinStore"]
