"""What is promised in `contracts/v1` is what the code says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langgraph_navin import capabilities, contracts, errors
from langgraph_navin.wire import DEFINITIONS, Announcement, CapabilitiesView, Error

#: Contract 2: `$defs` for these, under these names.
PROMISED = {
    *("context", "announcement", "capabilities_view", "policy", "memory_item", "recall", "dataset", "relation", "audit_event", "error"),
    "engine_instance",
}


def test_the_files_are_those_of_the_code() -> None:
    assert contracts.differing() == []


def test_a_difference_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(contracts, "HERE", tmp_path)
    monkeypatch.setattr(contracts.differing, "__defaults__", (tmp_path,))
    contracts.write(tmp_path)
    assert contracts.main(["--check"]) == 0
    (tmp_path / "public.txt").write_text("something else\n")
    assert contracts.main(["--check"]) == 1
    assert "public.txt" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_text_does_not_depend_on_hashes(seed: str) -> None:
    command = [sys.executable, "-m", "langgraph_navin.contracts", "--check"]
    assert subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=False).returncode == 0


def references(node: Any) -> set[str]:
    if isinstance(node, list):
        return {ref for part in node for ref in references(part)}
    if isinstance(node, dict):
        own = {node["$ref"]} if "$ref" in node else set()
        return own.union(*(references(part) for part in node.values()))
    return set()


def test_every_reference_leads_somewhere() -> None:
    schema = json.loads((contracts.HERE / "memory-provider.schema.json").read_text("utf-8"))
    assert schema["$defs"].keys() == DEFINITIONS.keys()
    assert DEFINITIONS.keys() >= PROMISED
    assert references(schema) <= {f"#/$defs/{name}" for name in schema["$defs"]}


def test_what_is_announced_fits_the_schema() -> None:
    able = sorted(capabilities.PROVIDERS["builtin"])
    announced = {"provider": "builtin", "engine_instance": "builtin", "capabilities": able, "memory": able, "knowledge": []}
    Announcement.model_validate(announced)
    CapabilitiesView.model_validate(announced | {"isolation": "enforced", "session_memory": True})


@pytest.mark.parametrize("kind", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.NavinError)])
def test_every_error_fits_the_schema(kind: type[errors.NavinError]) -> None:
    error = kind("something", field="name", number=1, names=["a"])
    Error(code=error.code, status=error.status, message=str(error), details=error.details)
