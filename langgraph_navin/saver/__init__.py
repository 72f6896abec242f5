"""LangGraph's checkpointer on PostgreSQL: one object, sync and async, from any thread and event loop."""

from __future__ import annotations

from langgraph_navin.saver.postgres import Connections, NavinSaver
from langgraph_navin.saver.serde import StrictSerializer

__all__ = ["Connections", "NavinSaver", "StrictSerializer"]
