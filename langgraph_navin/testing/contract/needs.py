"""Which capabilities a test of the contract needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...capabilities import MemoryCapability

F = TypeVar("F", bound=Callable[..., Any])


def needs(*capabilities: MemoryCapability) -> Callable[[F], F]:
    """Leave the test out for an engine that doesn't announce all of these."""

    def marked(test: F) -> F:
        test.needs = frozenset(capabilities)  # type: ignore[attr-defined]
        return test

    return marked
