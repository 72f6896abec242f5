"""The command line: `navin setup`, `navin maintain`, `navin health`.

Settings come from the environment and a TOML file, as for `Navin.open()`; a DSN is never a command's argument, since
arguments stand in the process list.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from . import __version__
from .errors import NavinError
from .maintenance import UNINDEXED
from .navin import Navin


def _setup(navin: Navin) -> dict[str, object]:
    return {"schema": "current", "isolation": navin.isolation}


def _maintain(navin: Navin) -> dict[str, object]:
    done = navin.maintenance.tick()
    return {**done, "hint": UNINDEXED} if done.get("unindexed") else {**done}


def _health(navin: Navin) -> dict[str, object]:
    return {**navin.health()}


_COMMANDS: dict[str, tuple[Callable[[Navin], dict[str, object]], str]] = {
    "setup": (_setup, "create or upgrade the schema"),
    "maintain": (
        _maintain,
        "one round of maintenance: sweep what has expired, compact the text index, index the vectors of large partitions",
    ),
    "health": (_health, "ask the engine whether it answers"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its answer is one line of JSON, an error goes to stderr with its code."""
    parser = argparse.ArgumentParser(prog="navin", description="Governed memory for LangGraph.")
    parser.add_argument("--version", action="version", version=f"navin {__version__}")
    parser.add_argument("--config", help="a TOML file with settings (default: $NAVIN_CONFIG)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, what) in _COMMANDS.items():
        commands.add_parser(name, help=what, description=what)
    chosen = parser.parse_args(arguments)
    try:
        with Navin.open(config=chosen.config) as navin:
            sys.stdout.write(json.dumps(_COMMANDS[chosen.command][0](navin)) + "\n")
    except NavinError as error:
        sys.stderr.write(f"navin: {error.code}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
