-- Statements of the builtin engine, by name. Names in braces are filled in by statements.py with identifiers and
-- conditions; %(…)s are bound values. Every one compares the policy epoch in the statement that reads the data.

-- name: get_one
-- One item by its key, the commonest question: one call.
select * from navin.get_one(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partition)s, %(ns)s, %(key)s, %(refresh)s)

-- name: get_many
-- Many items by their keys, in one call.
select * from navin.get_many(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partitions)s, %(ns)s, %(keys)s)

-- name: newest
-- Items of one partition, newest first, by the commonest filters: one call.
select * from navin.newest(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partition)s, %(start)s, %(stop)s, %(walk)s,
  %(equal)s, %(limit)s, %(offset)s)

-- name: namespaces
-- Namespaces of one partition under a prefix, in one call.
select * from navin.namespaces(%(tenant)s, %(parts)s, %(epoch)s, %(ceiling)s, %(kinds)s, %(partition)s, %(start)s, %(stop)s,
  %(depth)s, %(limit)s, %(offset)s)

-- name: put_one
-- One put, in one call.
select navin.put_one(%(tenant)s, %(partition)s, %(epoch)s, %(who)s, %(ceiling)s, %(kinds)s, %(lexer)s, %(ns)s, %(whole)s, %(key)s, %(id)s,
  %(value)s, %(kind)s, %(classification)s, %(importance)s, %(source)s, %(ttl)s, %(length)s, %(count)s, %(text)s, %(fields)s, %(vectors)s)

-- name: write
-- A whole batch of writes as one document.
select * from navin.write(%(tenant)s, %(parts)s, %(epoch)s, %(who)s, %(ceiling)s, %(kinds)s, %(lexer)s, %(count)s, %(told)s,
  %(puts)s, %(gone)s, %(texts)s, %(fields)s, %(vectors)s)

-- name: write_noted
-- The same, for a batch that was refused by what stands there: the refusal is kept.
select * from navin.write_noted(%(tenant)s, %(parts)s, %(epoch)s, %(who)s, %(ceiling)s, %(kinds)s, %(lexer)s, %(count)s, %(told)s,
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
  where i.tenant_id = %(tenant)s and i.id > '00000000-0000-0000-0000-000000000000' and i.id = any (%(ids)s::uuid[]) and i.partition = any (%(partitions)s) and {where}) i on not e.stale

-- name: list_items
-- Newest first. The walk of one partition follows the index items_newest and stops at the limit.
select e.stale, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale) e
left join lateral (
  select {columns} from navin.items i where i.tenant_id = %(tenant)s and {scope} and i.updated_at > '-infinity' and {where}
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
-- an item that was changed since its text was scored has another version now. Columns as of hybrid.
select e.stale, e.there, null::float8, null::bigint, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale,
  (select count(*) from navin.items i where i.tenant_id = %(tenant)s and {scope} and i.vid > 0 and i.vid = any (%(vids)s::bigint[])) as there) e
left join lateral (
  select {columns}, i.vid, null::float8 as distance from navin.items i
  where i.tenant_id = %(tenant)s and {scope} and i.vid > 0 and i.vid = any (%(vids)s::bigint[]) and {where}) i on not e.stale

-- name: hybrid
-- The nearest vectors and the best texts, each with its true distance: the client fuses them. The second, third and fourth columns
-- belong to the whole answer: how many of the texts are still there; how far away the unseen are at least, null where nothing is
-- unseen or the rows say it themselves; how many vectors the partition's index is known to serve, null without one.
with q as materialized (select %(vector)s::real[]::{vector_schema}.vector as q),
{near},
said as (
  select i.partition, i.vid, {apart} as distance
  from q cross join navin.items i
  where i.tenant_id = %(tenant)s and {scope} and i.vid > 0 and i.vid = any (%(vids)s::bigint[]) and {where}),
h as materialized (select near.* from near union all select said.*, false from said where said.vid not in (select near.vid from near))
select e.stale, e.there, e.horizon, e.indexed, i.*
from (select coalesce((select epoch from navin.epochs where tenant_id = %(tenant)s), 0) <> %(epoch)s as stale,
  (select count(*) from navin.items i where i.tenant_id = %(tenant)s and {scope} and i.vid > 0 and i.vid = any (%(vids)s::bigint[])) as there,
  {horizon} as horizon, {indexed} as indexed) e
left join lateral (
  select {columns}, i.vid, h.distance, h.is_near from h join navin.items i
    on i.partition = h.partition and i.vid = h.vid
    where i.tenant_id = %(tenant)s and {scope} and i.vid > 0 and i.vid = any (array(select h.vid from h))) i on not e.stale

-- name: apart
-- The distance of an item's nearest vector.
(select min(v.embedding operator({vector_schema}.{distance}) q.q) from (
    select * from navin.vectors f where f.tenant_id = %(tenant)s and f.partition = i.partition and f.ns = i.ns and f.key = i.key
    union all
    select * from navin.settled s where s.tenant_id = %(tenant)s and s.partition = i.partition and s.ns = i.ns and s.key = i.key) v)

-- name: near_exactly
-- Every vector of the partitions is compared.
near as (
  select v.partition, v.vid, min(v.distance) as distance, true as is_near
  from (
    select i.partition, i.vid, f.embedding operator({vector_schema}.{distance}) q.q as distance
    from q cross join navin.vectors f
    join navin.items i on i.tenant_id = f.tenant_id and i.partition = f.partition and i.ns = f.ns and i.key = f.key
    where f.tenant_id = %(tenant)s and {fresh_scope} and {where}
    union all
    select i.partition, i.vid, s.embedding operator({vector_schema}.{distance}) q.q
    from q cross join navin.settled s
    join navin.items i on i.tenant_id = s.tenant_id and i.partition = s.partition and i.ns = s.ns and i.key = s.key
    where s.tenant_id = %(tenant)s and {settled_scope} and {where}) v
  group by v.partition, v.vid order by 3, v.vid limit %(near)s)

-- name: near_by_index
-- The fresh vectors of one partition are compared, the settled ones walked by its index, nearest first. One item may come by several
-- vectors; the unseen are beyond the last of each. Offset 0 keeps the order: a vector, then its item by the primary key.
fresh as materialized (
  select i.partition, i.ns, i.key, i.vid, f.embedding operator({vector_schema}.{distance}) q.q as distance
  from q cross join navin.vectors f cross join lateral (
    select i.partition, i.ns, i.key, i.vid from navin.items i
    where i.tenant_id = f.tenant_id and i.partition = f.partition and i.ns = f.ns and i.key = f.key and {where} offset 0) i
  where f.tenant_id = %(tenant)s and {fresh_scope} order by 5 limit %(near)s),
walked as materialized (
  select i.partition, i.ns, i.key, i.vid, {settled_distance} as distance
  from navin.settled s cross join lateral (
    select i.partition, i.ns, i.key, i.vid from navin.items i
    where i.tenant_id = s.tenant_id and i.partition = s.partition and i.ns = s.ns and i.key = s.key and {where} offset 0) i
  where s.tenant_id = %(tenant)s and {settled_scope} order by {settled_distance} limit %(near)s),
near as (
  select i.partition, i.vid, {apart} as distance, false as is_near
  from q cross join (select f.partition, f.ns, f.key, f.vid from fresh f union select w.partition, w.ns, w.key, w.vid from walked w) i)

-- name: horizon
-- How far away what near_by_index left unseen is at least. Null where the walk ended early.
(select case when (select count(*) from walked) >= %(near)s
  then least((select max(w.distance) from walked w), (select max(f.distance) from fresh f having count(*) >= %(near)s)) end)

-- name: indexed
-- How many vectors a partition's index serves, null without one that compares in this way.
(select a.vectors from navin.ann a where a.tenant_id = %(tenant)s and {scope} and a.distance = {way} and a.dims = {dims} and a.ready)

-- name: ping
select 1

-- name: sweep
select navin.sweep(%(limit)s)

-- name: uncompacted
select * from navin.uncompacted(%(lexer)s, %(small)s, %(rows)s, %(dead)s, %(limit)s)

-- name: compact
select navin.compact(%(tenant)s, %(partition)s, %(classification)s, %(lexer)s, %(small)s, %(rows)s)

-- name: settling
-- The schema of pgvector, no row without it; whether this role may make indexes that go on under conditions, which came with 0.8; and
-- whether anybody is making one just now: the lock is an index build's, or a vacuum's, which is soon over.
select n.nspname, pg_has_role(current_user, c.relowner, 'usage') and has_schema_privilege('navin', 'create')
    and string_to_array(regexp_replace(e.extversion, '[^0-9.].*', ''), '.')::int[] >= array[0, 8],
  exists (select from pg_locks l where l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.relation = c.oid and l.mode = 'ShareUpdateExclusiveLock' and l.pid <> pg_backend_pid())
from pg_class c join pg_extension e on e.extname = 'vector' join pg_namespace n on n.oid = e.extnamespace
where c.oid = to_regclass('navin.settled')

-- name: large
select * from navin.large(%(at)s, %(most)s)

-- name: unsettled
select * from navin.unsettled(%(rows)s)

-- name: settle
select navin.settle(%(tenant)s, %(partition)s, %(rows)s)

-- name: note_ann
select navin.note_ann(%(tenant)s, %(partition)s, %(dims)s, %(distance)s, %(name)s, %(vectors)s, %(ready)s)

-- name: strike_ann
select navin.strike_ann(%(names)s)

-- name: enter_near
-- As enter, for a search that compares vectors.
select navin.enter_near(%(tenant)s, %(parts)s)

-- name: enter_walk
-- As enter, for a search that walks a partition's index.
select navin.enter_walk(%(tenant)s, %(parts)s, %(look)s)

-- name: indexes
-- The indexes of settled vectors, and whether each is whole: one that was left by a crashed build is not.
select c.relname, x.indisvalid and x.indisready from pg_index x join pg_class c on c.oid = x.indexrelid join pg_am a on a.oid = c.relam
where x.indrelid = to_regclass('navin.settled') and a.amname = 'hnsw'

-- name: build
-- Beside the writers, and outside a transaction. Every partition's own: one index for all would find what a caller may not see first.
create index concurrently if not exists {name} on navin.settled
  using hnsw (({column}) {vector_schema}.{operators}) where tenant_id = {tenant} and partition = {partition}

-- name: learn
-- Statistics, without which a server that never looked at these tables would not find the way from a vector to its item.
analyze navin.items, navin.vectors, navin.settled

-- name: unbuild
drop index concurrently if exists navin.{name}
