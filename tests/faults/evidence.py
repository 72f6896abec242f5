"""Compares what a database holds with what callers were told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, LiteralString

import pytest

from databases import Database
from faults.running import until
from faults.tally import Tally
from faults.writes import USER, Id, Ledger, Place, Write, caller
from langgraph_navin import Navin
from store_subjects import LetterCounts

#: Every rule about a tenant's rows, with the rows that break it.
BROKEN: LiteralString = """
with me (t) as (values (%s::text)),
  i as (select i.* from navin.items i, me where i.tenant_id = t),
  j as (select j.* from navin.journal j, me where j.tenant_id = t),
  made as (select * from j where op in ('remember', 'update')),
  forgot as (select item_id, count(*) as times from j where op = 'forget' group by item_id),
  indexed as (select x as vid from navin.pending p, me, unnest(p.vids) x where p.tenant_id = t),
  dead as (select d.vid from navin.dead d, me where d.tenant_id = t),
  live as (select vid from indexed except select vid from dead),
  v as (select v.* from navin.vectors v, me where v.tenant_id = t)
select 'a version has exactly one event', i.key || '@' || g
  from i cross join generate_series(1, i.version) g left join made m on m.item_id = i.id and m.version = g
  group by i.key, i.id, g having count(m.seq) <> 1
union all select 'an event tells of a version that was there', m.item_id::text || '@' || m.version
  from made m left join i on i.id = m.item_id left join forgot f on f.item_id = m.item_id
  where m.version > i.version or i.id is null and f.item_id is null
union all select 'a memory is forgotten once, and gone', f.item_id::text
  from forgot f left join i on i.id = f.item_id left join made m on m.item_id = f.item_id and m.version = 1
  where f.times <> 1 or i.id is not null or m.item_id is null
union all select 'what is forgotten leaves no content', m.item_id::text
  from made m join forgot f using (item_id) where m.old_value is not null or m.salt is not null
union all select 'an event commits to the value', i.key
  from i join made m on m.item_id = i.id and m.version = i.version
  where m.digest is distinct from sha256(m.salt || convert_to(i.value::text, 'UTF8'))
union all select 'history keeps the value before', m.item_id::text || '@' || m.version
  from made m join made b on b.item_id = m.item_id and b.version = m.version - 1 join i on i.id = m.item_id
  where b.digest is distinct from sha256(b.salt || convert_to(m.old_value::text, 'UTF8'))
union all select 'nothing was refused', j.op || ' ' || j.rule from j where not allowed
union all select 'a text is indexed once', vid::text from indexed group by vid having count(*) > 1
union all select 'what is indexed lives', vid::text from (select vid from live except select vid from i where dl > 0) x
union all select 'what lives is indexed', vid::text from (select vid from i where dl > 0 except select vid from live) x
union all select 'what is marked dead is indexed', vid::text from (select vid from dead except select vid from indexed) x
union all select 'a vector has its memory', v.key from v left join i using (partition, ns, key) where i.id is null
union all select 'a memory has its vectors', i.key
  from i left join v using (partition, ns, key) group by i.id, i.key, i.vectors having count(v.key) <> i.vectors
union all select 'a partition is listed', x.partition
  from (select partition from i except select p.partition from navin.partitions p, me where p.tenant_id = t) x
"""
ITEMS: LiteralString = "select string_to_array(rtrim(ns, E'\\x1f'), E'\\x1f'), key, value, version from navin.items where tenant_id = %s"
ACTIVE: LiteralString = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'navin' and state is distinct from 'idle'"""
EMBEDDED: LiteralString = """
select i.key, i.value ->> 'text', v.embedding::text from navin.vectors v join navin.items i using (tenant_id, partition, ns, key)
where tenant_id = %s"""


@dataclass
class Verdict:
    """What was found wrong."""

    lost: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    #: Writes that were carried out although nobody was told so.
    found: int = 0


def compared(found: dict[Place, tuple[dict[str, Any], int]], ledger: Ledger) -> Verdict:
    """Judge every write by the places it touches."""
    applied = {write.id for write in ledger.begun.values() if write.mark in found}
    verdict = Verdict(found=len(applied & ledger.in_flight))
    verdict.lost = [write.word for write in ledger.acknowledged.values() if write.id not in applied]
    verdict.other = [f"{write.word} was refused and is there" for write in ledger.refused.values() if write.id in applied]
    for write in ledger.begun.values():
        verdict.half += [f"{write.word}: {place[1]}" for place in _wrong(write, found, applied, ledger)]
    verdict.half += [f"{place[1]} is of no write" for place in found.keys() - _known(ledger)]
    verdict.half += list(_heads(found, applied, ledger))
    return verdict


def _wrong(write: Write, found: dict[Place, tuple[dict[str, Any], int]], applied: set[Id], ledger: Ledger) -> Iterator[Place]:
    there = write.id in applied
    for place in write.kept:
        if (found[place] == (write.value(place), 1)) != there if place in found else there:
            yield place
    if not write.batch:
        return
    deleted = write.later() in applied
    # Carried out after its caller had given up on it, it may come after its own deletion.
    late = there and deleted and write.id in ledger.in_flight
    stands = write.passing in found
    exact = not stands or found[write.passing] == (write.value(write.passing), 1)
    if not exact or (not late and stands != (there and not deleted)):
        yield write.passing


def _known(ledger: Ledger) -> set[Place]:
    return {place for write in ledger.begun.values() for place in (*write.kept, write.passing, write.head)}


def _heads(found: dict[Place, tuple[dict[str, Any], int]], applied: set[Id], ledger: Ledger) -> Iterator[str]:
    """A worker's head counts its batches, and holds the last of them: one of unknown fate may come late."""
    batches: dict[Place, dict[int, Write]] = {}
    for write in ledger.begun.values():
        if write.batch and write.id in applied:
            batches.setdefault(write.head, {})[write.n] = write
    for head, done in batches.items():
        value, version = found.get(head, ({}, 0))
        holds = done.get(value.get("n", -1))
        if version != len(done) or holds is None or value != holds.value(head):
            yield f"{head[1]} is wrong at version {version} of {len(done)}"
        elif holds.n != max(done) and holds.id not in ledger.in_flight:
            yield f"{head[1]} holds {holds.n} and not {max(done)}"


class Evidence:
    """Judges runs on one database, through its superuser and through a store that reads."""

    def __init__(self, database: Database, reader: Navin, tally: Tally) -> None:
        self.database, self._reader, self._tally = database, reader, tally

    def judge(self, kind: str, seed: int, tenant: str, ledger: Ledger, unexcused: list[str] | None = None) -> None:
        """Fail unless every acknowledged write is there, none is half there, and every rule about rows holds."""
        # The server may still be at what nobody waits for any more.
        until(lambda: not self.database.value(ACTIVE), "the server is still busy")
        rows = self.database.rows(ITEMS, tenant)
        verdict = compared({(tuple(labels), key): (value, version) for labels, key, value, version in rows}, ledger)
        verdict.other += unexcused or []
        verdict.other += [f"{rule}: {what}" for rule, what in self.database.rows(BROKEN, tenant)]
        verdict.other += self._unsearchable(tenant, ledger) + self._stale_vectors(tenant)
        self._count(kind, ledger, verdict)
        assert (verdict.lost, verdict.half, verdict.other) == ([], [], []), f"{kind}, seed {seed}: {verdict}"

    def _unsearchable(self, tenant: str, ledger: Ledger) -> list[str]:
        store = self._reader.store.bound(caller(tenant))
        found = {write: store.search(USER, query=f"{write.word}a", limit=1) for write in ledger.last()}
        return [f"{write.word} isn't found by its word" for write, items in found.items() if [i.key for i in items] != [write.mark[1]]]

    def _stale_vectors(self, tenant: str) -> list[str]:
        rows = self.database.rows(EMBEDDED, tenant)
        expected = LetterCounts().embed_documents([text for _, text, _ in rows])
        pairs = zip(rows, expected, strict=True)
        return [f"the vector of {key} is of another text" for (key, _, kept), vector in pairs if json.loads(kept) != pytest.approx(vector)]

    def _count(self, kind: str, ledger: Ledger, verdict: Verdict) -> None:
        count = self._tally.of(kind)
        count.runs += 1
        count.acknowledged += len(ledger.acknowledged)
        count.refused += len(ledger.refused)
        count.in_flight += len(ledger.in_flight)
        count.found += verdict.found
        count.lost += len(verdict.lost)
        count.half += len(verdict.half)
        count.other += len(verdict.other)
