"""The names that users may import are listed once, in `contracts/v1/public.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

import langgraph_navin

PUBLIC = Path(__file__).parents[2] / "contracts" / "v1" / "public.txt"


def test_names_are_sorted_and_unique() -> None:
    assert list(langgraph_navin.__all__) == sorted(set(langgraph_navin.__all__))


@pytest.mark.parametrize("name", langgraph_navin.__all__)
def test_each_name_resolves(name: str) -> None:
    assert getattr(langgraph_navin, name) is not None


def test_names_are_those_of_the_contract() -> None:
    assert list(langgraph_navin.__all__) == PUBLIC.read_text("utf-8").splitlines()
