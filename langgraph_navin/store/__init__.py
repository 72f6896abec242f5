"""The LangGraph door."""

from __future__ import annotations

from .store import Identity, NavinStore

__all__ = ["Identity", "NavinStore"]
