"""For whoever writes an engine, or tests an application: a contract to inherit, a reference engine, fakes.

    from langgraph_navin.testing import EngineContract

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def engine(self) -> Engine:
            return MyEngine(…)

`EngineContract` needs pytest and nothing else; the other names don't need it either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dictionary import DictionaryEngine
from .fakes import FakeEmbeddings, FixedClock, RecordingSession

if TYPE_CHECKING:
    from .contract import EngineContract

__all__ = ["DictionaryEngine", "EngineContract", "FakeEmbeddings", "FixedClock", "RecordingSession"]


def __getattr__(name: str) -> Any:
    if name != "EngineContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    # Before the import: a failing assertion then shows what it compared.
    pytest.register_assert_rewrite(f"{__name__}.contract")
    from .contract import EngineContract

    return EngineContract
