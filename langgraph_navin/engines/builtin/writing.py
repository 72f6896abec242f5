"""The engine's writes: what a batch leaves at each place, and the one statement that puts it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from ...effects import Steps, embed
from ...errors import Conflict, LegalHold, NavinError, PolicyDenied
from ...items import MemoryItem, Receipt
from ...operations import Access, Answer, Call, Forget, Remember, Update
from ...scopes import UNIT
from ...values import decode
from .documents import Place, Put, batch, listed, one, place
from .faults import RefusedThere
from .lexemes import VERSION
from .reads import Kept
from .session import Model
from .statements import Row, query

#: Where a forgotten memory's content is gone from, in the transaction that forgets it.
#: The text index isn't among them: searches leave the item out at once, its lexemes go with the next compaction.
_ERASED_FROM = ("items", "history", "vectors")


@dataclass(frozen=True, slots=True)
class Index:
    """What is searchable: paths of a value, and the model if there is one."""

    fields: tuple[str, ...] = ("$",)
    model: Model | None = None
    distance: str = "cosine"


def write(access: Access, writes: Writes, known: Mapping[str, list[float]], answers: list[Answer]) -> Steps[None]:
    """Plan what is left of a batch's writes; `known` has vectors of its texts, as far as there were any before."""
    if not writes.puts and not writes.gone:
        return
    puts = list(writes.puts.values())
    missing = tuple(dict.fromkeys(text for put in puts for text in put.texts if text not in known))
    if missing:
        known = {**known, **dict(zip(missing, (yield from embed(missing)), strict=True))}
    vectors = [known[text] for put in puts for text in put.texts]
    sent = Sent(access, writes, puts, vectors)
    try:
        outcome, forgot = yield from sent.written()
    except RefusedThere as there:
        refused = there
    else:
        writes.answer(answers, outcome, forgot)
        return
    if access.tentative:
        raise _error(refused.rule)
    # Once more, so that the refusal is kept: the first attempt left nothing, to be quick where nothing refuses.
    rule, outcome, forgot = yield from sent.noted()
    if rule is not None:
        raise _error(rule)
    writes.answer(answers, outcome, forgot)


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch's writes as the statement that carries them."""

    access: Access
    writes: Writes
    puts: Sequence[Put]
    vectors: Sequence[list[float]]

    def written(self) -> Steps[tuple[Any, Any]]:
        """Write them, or raise `RefusedThere`: what became of the puts, and which places held something to forget."""
        if len(self.puts) == 1 and not self.writes.told:
            put = one(self.puts[0], self.vectors, self.writes.index.distance)
            yield from query("put_one", self._shared() | put, writes=True)
            return None, None
        outcome, forgot = (yield from query("write", self._document(), writes=True))[0]
        return outcome, forgot

    def noted(self) -> Steps[Row]:
        """The same, and a refusal goes to the journal: its rule comes first."""
        return (yield from query("write_noted", self._document(), writes=True))[0]

    def _shared(self) -> dict[str, Any]:
        access = self.access
        return {
            "tenant": access.tenant,
            "epoch": access.epoch,
            "who": who(access),
            "ceiling": access.ceiling,
            "kinds": list(access.kinds) if access.kinds is not None else None,
            "lexer": VERSION,
        }

    def _document(self) -> dict[str, Any]:
        touched = {put.place[0] for put in self.puts} | {partition for partition, _, _ in self.writes.gone}
        sizes = {"parts": listed(sorted(touched)), "count": len(self.puts), "told": self.writes.told}
        return self._shared() | sizes | batch(self.puts, self.writes.gone, self.vectors, self.writes.index.distance)


def who(access: Access) -> str:
    """Who acts, as the journal's settings take it."""
    return UNIT.join((access.actor, access.agent, str(access.policy_version), access.trace or ""))


def _error(rule: str) -> NavinError:
    match rule:
        case "legal_hold":
            return LegalHold("a memory of this batch is under legal hold; nothing was written", rule=rule)
        case "expected_version":
            return Conflict("a memory of this batch isn't at the expected version any more; nothing was written", rule=rule)
    return PolicyDenied(f"the policy's {rule} refuses to replace what stands there; nothing was written", rule=rule)


def rewritten(kept: Kept, update: Update) -> Remember:
    """An update as the write that keeps everything else of the item."""
    found = kept.item
    # Against the version that was read: whoever changed it meanwhile isn't overwritten unseen.
    expected = found.version if update.expected_version is None else update.expected_version
    return Remember(
        namespace=found.namespace,
        key=found.key,
        value=update.value,
        item_id=found.id,
        document=update.document,
        kind=found.kind,
        classification=found.classification,
        importance=found.importance,
        source=found.source,
        # What was written to be found by nothing stays so.
        index=None if kept.indexed else False,
        ttl=kept.ttl,
        expected_version=expected,
    )


class Writes:
    """The writes of a batch by place: the last one to a place wins."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.puts: dict[Place, Put] = {}
        #: By place, the id that must stand there, or None for whatever does.
        self.gone: dict[Place, str | None] = {}
        self._asked: list[tuple[int, Place, str | None]] = []

    def take(self, at: int, call: Call) -> None:
        match call.operation:
            case Remember() as write:
                self.put(at, call.partition.text, write)
            case Forget() as write:
                self.forget(at, place(call.partition.text, write), None)

    def leave(self, call: Call) -> None:
        """Leave out what nobody waits for."""
        if isinstance(call.operation, (Remember, Forget)):
            where = place(call.partition.text, call.operation)
            self.puts.pop(where, None)
            self.gone.pop(where, None)

    def put(self, at: int, partition: str, write: Remember, *, by_id: bool = False) -> None:
        put = Put.of(partition, write, self.index.fields, embeds=self.index.model is not None, by_id=by_id)
        self.gone.pop(put.place, None)
        # Taken out first: the last write to a place also comes last.
        self.puts.pop(put.place, None)
        self.puts[put.place] = put
        self._asked.append((at, put.place, None))

    @property
    def told(self) -> bool:
        """Whether it matters what became of a write: somebody asked, or expected a version."""
        return bool(self.gone) or any(put.write.wanted or put.by_id or put.write.expected_version is not None for put in self.puts.values())

    def forget(self, at: int, where: Place, item_id: str | None) -> None:
        self.puts.pop(where, None)
        self.gone[where] = item_id
        self._asked.append((at, where, item_id))

    def answer(self, answers: list[Answer], outcome: list[list[Any]] | None, forgot: list[list[str]] | None) -> None:
        """Put what `write` reports to its operations: the stored item, or a receipt."""
        stored = {row[0]: row[1:] for row in outcome or []}
        found = {tuple(row) for row in forgot or []}
        for at, where, item_id in self._asked:
            if where in self.puts:
                answers[at] = _stored(self.puts[where], stored) if self.puts[where].write.wanted else None
            else:
                answers[at] = Receipt(True, item_id, _ERASED_FROM) if where in found else Receipt(False, item_id)


def _stored(put: Put, stored: dict[str, list[Any]]) -> MemoryItem:
    write = put.write
    item_id, version, created, updated, expires = stored[write.item_id]
    return MemoryItem(
        id=item_id,
        partition=put.place[0],
        namespace=write.namespace,
        key=write.key,
        value=decode(write.value),
        kind=write.kind,
        classification=write.classification,
        importance=write.importance,
        source=cast("dict[str, Any] | None", write.source),
        version=version,
        created_at=datetime.fromisoformat(created),
        updated_at=datetime.fromisoformat(updated),
        expires_at=datetime.fromisoformat(expires) if expires else None,
    )
