-- Statements of the builtin engine, by name. Names in braces are filled in by statements.py with identifiers and
-- conditions; %(…)s are bound values. Every one compares the policy epoch in the statement that reads the data.

-- name: get_one
-- One item by its key, the commonest question: one call.
select * from navin.get_one(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partition)s, %(ns)s, %(key)s, %(refresh)s)

-- name: get_many
-- Many items by their keys, in one call.
select * from navin.get_many(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partitions)s, %(ns)s, %(keys)s)

-- name: write
-- A whole batch of writes as one document.
select * from navin.write(%(tenant)s, %(parts)s, %(epoch)s, %(who)s, %(ceiling)s, %(kinds)s, %(lexer)s, %(want)s, %(many)s,
  %(puts)s, %(gone)s, %(texts)s, %(fields)s, %(vectors)s)

-- name: refuse
-- What was refused, in a transaction of its own.
select navin.refuse(%(tenant)s, %(who)s, %(events)s)

-- name: epoch_of
select navin.epoch_of(%(tenant)s)

-- name: partitions_of
select * from navin.partitions_of(%(tenant)s, %(scopes)s)

-- name: refresh
-- Reads prolong the lives of what they found.
select navin.refresh_as(%(tenant)s, %(parts)s, %(ids)s)

-- name: text_hits
-- What BM25 needs, in one snapshot.
select * from navin.text_hits(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(partitions)s, %(lexer)s, %(lexemes)s)

-- name: enter
-- The caller of the statement that follows in the same pipeline, and so in the same transaction.
select navin.enter(%(tenant)s, %(parts)s)

-- name: get_by_ids
-- Items by their ids, with the life a rewrite has to keep.
select e.stale, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale) e
left join lateral (
  select {columns}, i.ttl_s, i.dl, i.vectors from navin.items i
  where i.tenant_id = %(tenant)s and i.id = any (%(ids)s::uuid[]) and i.partition = any (%(partitions)s) and {where}) i on not e.stale

-- name: list_items
-- Newest first. The walk of one partition follows the index items_newest and stops at the limit.
select e.stale, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale) e
left join lateral (
  select {columns} from navin.items i where i.tenant_id = %(tenant)s and {scope} and {where}
  order by i.updated_at desc, i.ns, i.key limit %(limit)s offset %(offset)s) i on not e.stale
order by i.updated_at desc, i.ns, i.key

-- name: list_namespaces
-- Namespaces that hold something, cut to a depth, sorted by their labels.
select e.stale, n.cut
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale) e
left join lateral (
  select distinct array_to_string(x.labels[1 : %(depth)s], E'\x1f') collate "C" as cut
  from (select distinct string_to_array(left(coalesce(i.namespace, i.ns), -1), E'\x1f') as labels
    from navin.items i where i.tenant_id = %(tenant)s and {scope} and {where}) x
  where {matching}
  order by 1 limit %(limit)s offset %(offset)s) n on not e.stale
order by n.cut

-- name: text_only
-- The rows of the best texts, as far as they meet the conditions; and how many of them are still there, conditions or not:
-- an item that was changed since its text was scored has another version now.
select e.stale, e.there, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale,
  (select count(*) from navin.items i where i.tenant_id = %(tenant)s and {scope} and i.vid = any (%(vids)s::bigint[])) as there) e
left join lateral (
  select {columns}, i.vid, null::float8 as distance from navin.items i
  where i.tenant_id = %(tenant)s and {scope} and i.vid = any (%(vids)s::bigint[]) and {where}) i on not e.stale

-- name: hybrid
-- The nearest vectors and the best texts, each with its true distance: the client fuses them.
with q as materialized (select %(vector)s::real[]::{vector_schema}.vector as q),
near as (
  select i.partition, i.vid, min(v.embedding operator({vector_schema}.{distance}) q.q) as distance
  from q cross join navin.vectors v join navin.items i
    on i.tenant_id = v.tenant_id and i.partition = v.partition and i.ns = v.ns and i.key = v.key
  where v.tenant_id = %(tenant)s and {vector_scope} and {where}
  group by i.partition, i.vid order by 3, i.vid limit %(near)s),
said as (
  select i.partition, i.vid, min(v.embedding operator({vector_schema}.{distance}) q.q) as distance
  from q cross join navin.items i left join navin.vectors v
    on v.tenant_id = i.tenant_id and v.partition = i.partition and v.ns = i.ns and v.key = i.key
  where i.tenant_id = %(tenant)s and {scope} and i.vid = any (%(vids)s::bigint[]) and {where}
  group by i.partition, i.vid),
h as (select near.*, true as is_near from near union all select said.*, false from said where said.vid not in (select near.vid from near))
select e.stale, e.there, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale,
  (select count(*) from navin.items i where i.tenant_id = %(tenant)s and {scope} and i.vid = any (%(vids)s::bigint[])) as there) e
left join lateral (
  select {columns}, i.vid, h.distance, h.is_near from h join navin.items i
    on i.tenant_id = %(tenant)s and i.partition = h.partition and i.vid = h.vid) i on not e.stale

-- name: ping
select 1

-- name: sweep
select navin.sweep(%(limit)s)

-- name: uncompacted
select * from navin.uncompacted(%(lexer)s, %(small)s, %(rows)s, %(dead)s, %(limit)s)

-- name: compact
select navin.compact(%(tenant)s, %(partition)s, %(classification)s, %(lexer)s, %(small)s, %(rows)s)
