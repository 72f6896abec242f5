"""Promises that others rely on, generated from the code: `python -m langgraph_navin.contracts [--check]`.

`contracts/v1/memory-provider.schema.json` is the contract as JSON Schema 2020-12, `public.txt` the public names.
A difference between the files and the code fails CI; whoever means it regenerates them and says so in the changelog.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from . import __all__ as public
from .wire import DEFINITIONS

HERE = Path(__file__).parents[1] / "contracts" / "v1"


def schema() -> dict[str, Any]:
    """The contract's JSON Schema, its definitions under the contract's names."""
    _, made = models_json_schema([(model, "validation") for model in DEFINITIONS.values()], ref_template="#/$defs/{model}")
    names = {model.__name__: name for name, model in DEFINITIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://navin.dev/contracts/v1/memory-provider.schema.json",
        "title": "Navin Memory Provider",
        "$defs": _sorted({names[model]: _renamed(part, names) for model, part in made["$defs"].items()}),
    }


def _renamed(node: Any, names: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(part, names) for part in node]
    if not isinstance(node, dict):
        return node
    return {key: f"#/$defs/{names[value.rpartition('/')[2]]}" if key == "$ref" else _renamed(value, names) for key, value in node.items()}


def _sorted(node: Any) -> Any:
    """Dicts and sets in one order: pydantic writes a frozenset's default in the order of this process's hashes."""
    if isinstance(node, dict):
        return {key: sorted(node[key]) if key == "default" and isinstance(node[key], list) else _sorted(node[key]) for key in sorted(node)}
    return [_sorted(part) for part in node] if isinstance(node, list) else node


def files() -> dict[str, str]:
    """Every generated file and its text."""
    return {
        "memory-provider.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        "public.txt": "\n".join(public) + "\n",
    }


def differing(folder: Path = HERE) -> list[str]:
    """The files that are missing or say something else than the code."""
    return [name for name, text in files().items() if not (folder / name).is_file() or (folder / name).read_text("utf-8") != text]


def write(folder: Path = HERE) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Regenerate the files, or with `--check` only compare; 1 where they differ."""
    if "--check" not in (sys.argv[1:] if arguments is None else arguments):
        write()
        return 0
    if different := differing():
        sys.stderr.write(f"contracts/v1 differs from the code: {', '.join(different)}; run `make contracts` if that is meant\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
