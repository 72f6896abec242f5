"""The contract of an engine, as tests to inherit.

A subclass gives a fixture `engine`; every test has a tenant of its own, so one engine may serve all of them. Every
test runs in both colours. Tests of a capability that the engine doesn't announce are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from ...abc import Engine
from ...drive import arun, run
from ...effects import dispatch
from ..bench import Bench, Perform
from .items import Items
from .limits import Limits
from .lives import Lives
from .reads import Lists, Searches


class EngineContract(Items, Lists, Searches, Limits, Lives):
    """What every engine must do. Inherit it, and give it an `engine`."""

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine to test. Override this."""
        raise NotImplementedError("a subclass of EngineContract gives a fixture `engine`")

    @pytest.fixture(params=["sync", "async"])
    def perform(self, request: pytest.FixtureRequest, engine: Engine) -> Iterator[Perform]:
        """Carries out plans, in both colours."""
        if request.param == "sync":
            yield cast(Perform, lambda plan: run(dispatch(engine, plan)))
            return
        with asyncio.Runner() as runner:
            yield cast(Perform, lambda plan: runner.run(arun(dispatch(engine, plan))))

    @pytest.fixture
    def bench(self, request: pytest.FixtureRequest, engine: Engine, perform: Perform) -> Bench:
        """The engine, a new tenant, one colour."""
        needed: frozenset[str] = getattr(request.function, "needs", frozenset())
        missing = needed - engine.capabilities
        if missing:
            pytest.skip(f"{engine.name} doesn't announce {', '.join(sorted(missing))}")
        return Bench(engine, perform)
