"""Writes numbered memories until it is killed, and says each number after its write has returned."""

from __future__ import annotations

import sys

from langgraph.store.base import PutOp

from langgraph_navin import Navin

DSN, TENANT = sys.argv[1:]

with Navin.open(DSN, tenant=TENANT) as navin:
    for number in range(10**9):
        pair = [PutOp(("user", "u-1"), f"{number}-{half}", {"n": number, "text": f"memory {number} {half}"}) for half in ("a", "b")]
        navin.store.batch(pair)
        print(number, flush=True)  # noqa: T201  its parent reads this
