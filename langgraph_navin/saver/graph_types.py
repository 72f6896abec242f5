"""How the saver learns a graph's own types when the graph is compiled."""

from __future__ import annotations

import importlib
import logging
from typing import Final

logger = logging.getLogger(__name__)

_MODULE: Final = "langgraph._internal._serde"
_FLAG: Final = "STRICT_MSGPACK_ENABLED"


def ask_for_graph_types() -> None:
    """Make LangGraph's `compile()` tell every checkpointer the types of its graph's state.

    It collects them and calls `checkpointer.with_allowlist(types)` only when the environment held
    LANGGRAPH_STRICT_MSGPACK before LangGraph was imported; that variable also turns the default
    serializer of every other saver strict. We raise only the half that `compile()` looks at: a saver
    with the default serializer answers `with_allowlist` with itself and stays as it was, and one with
    an allow-list of its own learns its graph's types. Graphs compiled before this call tell nothing.

    The flag is LangGraph's own affair. Where it is gone a warning is logged, and a type that LangGraph
    doesn't tell is refused by name when a graph saves it.
    """
    try:
        told = importlib.import_module(_MODULE)
    except ModuleNotFoundError:
        told = None
    if hasattr(told, _FLAG):
        setattr(told, _FLAG, True)
    else:
        logger.warning("this LangGraph doesn't tell a graph's types on request: name them in Navin.open(serde_types=[…])")
