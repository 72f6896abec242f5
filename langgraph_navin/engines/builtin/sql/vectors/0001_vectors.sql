-- Only where the server has pgvector; {vector} is the schema it is installed in.
-- Where it was installed by somebody else, its schema may be closed to the roles.
grant usage on schema {vector} to navin_app, navin_maintenance;
-- One number of dimensions a tenant: distances between two models mean nothing.
create table navin.spaces (
  tenant_id text collate "C" primary key,
  dims int not null,
  distance text collate "C" not null           -- the last writer's: cosine, l2, inner_product
);
-- Fresh vectors: writers insert here alone, and searches compare with every one. No index but the key, so that a write
-- never waits for one.
create table navin.vectors (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  ns text collate "C" not null,
  key text collate "C" not null,
  field text collate "C" not null,
  embedding {vector}.vector not null,
  seq bigint generated always as identity,     -- never used twice: a row written anew is another one
  primary key (tenant_id, partition, ns, key, field)
);
-- Vectors of large partitions, moved here by maintenance. Each large partition has an HNSW index of its own, made by the owner.
-- A vector is in one of the two tables.
create table navin.settled (like navin.vectors, primary key (tenant_id, partition, ns, key, field));
-- Which partitions have an index. A list for planning: what a search finds depends on the rows alone.
create table navin.ann (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  dims int not null,
  distance text collate "C" not null,
  name text collate "C" not null,              -- of the index
  vectors bigint not null,                     -- in the partition, as maintenance last counted
  ready boolean not null,
  primary key (tenant_id, partition)
);
alter table navin.spaces enable row level security;
alter table navin.spaces force row level security;
alter table navin.vectors enable row level security;
alter table navin.vectors force row level security;
alter table navin.settled enable row level security;
alter table navin.settled force row level security;
alter table navin.ann enable row level security;
alter table navin.ann force row level security;
create policy app on navin.spaces to navin_app using (tenant_id = current_setting('navin.tenant', true));
create policy app on navin.vectors to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app on navin.settled to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app on navin.ann for select to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy maintenance on navin.spaces for select to navin_maintenance using (true);
create policy maintenance on navin.vectors to navin_maintenance using (true);
create policy maintenance on navin.settled to navin_maintenance using (true);
create policy maintenance on navin.ann to navin_maintenance using (true);
grant select, insert on navin.spaces to navin_app;
grant update (distance) on navin.spaces to navin_app;
grant select on navin.spaces to navin_maintenance;
grant select, insert, delete on navin.vectors to navin_app;
grant select, delete on navin.settled to navin_app;
grant select on navin.ann to navin_app;
-- A row lock (for update skip locked) needs the right to update.
grant select, update, delete on navin.vectors to navin_maintenance;
grant select, insert, delete on navin.settled to navin_maintenance;
grant select, insert, update, delete on navin.ann to navin_maintenance;

-- No vector outlives its text, whoever removes it. A row at a time: the rows that have none cost nothing.
-- First the fresh ones: a mover that holds one of them is waited for, and the second statement, with a newer snapshot, sees where it
-- went. In the other order a vector that moves between the two would be missed.
create function navin.unvector() returns trigger language plpgsql as $$ begin
  delete from navin.vectors v where v.tenant_id = old.tenant_id and v.partition = old.partition and v.ns = old.ns and v.key = old.key;
  delete from navin.settled v where v.tenant_id = old.tenant_id and v.partition = old.partition and v.ns = old.ns and v.key = old.key;
  return null;
end $$;
create trigger unvector_changed after update of vid on navin.items for each row
  when (old.vid <> new.vid and old.vectors > 0) execute function navin.unvector();
create trigger unvector_gone after delete on navin.items for each row when (old.vectors > 0) execute function navin.unvector();

create function navin.space_of(p_tenant text) returns int language plpgsql as $$ begin
  perform navin.enter(p_tenant, '');
  return (select dims from navin.spaces where tenant_id = p_tenant);
end $$;

-- p_fields [{{p, n, k, f}}], the first with d, the distance that searches will use.
create function navin.write_vectors(p_tenant text, p_fields json, p_vectors real[]) returns void language plpgsql as $$
declare
  d int := cardinality(p_vectors) / json_array_length(p_fields); metric text := coalesce(p_fields -> 0 ->> 'd', 'cosine');
  known record;
begin
  select s.dims, s.distance into known from navin.spaces s where s.tenant_id = p_tenant;
  if not found then
    insert into navin.spaces (tenant_id, dims, distance) values (p_tenant, d, metric) on conflict do nothing;
    select s.dims, s.distance into known from navin.spaces s where s.tenant_id = p_tenant;
  end if;
  if known.dims <> d then raise exception '% %', known.dims, d using errcode = 'NV003'; end if;
  if known.distance <> metric then
    -- Never waited for: writers of one tenant share no lock.
    update navin.spaces s set distance = metric from (
      select from navin.spaces where tenant_id = p_tenant for update skip locked) free where s.tenant_id = p_tenant;
  end if;
  insert into navin.vectors (tenant_id, partition, ns, key, field, embedding)
    select p_tenant, f.value ->> 'p', f.value ->> 'n', f.value ->> 'k', f.value ->> 'f', p_vectors[(f.pos - 1) * d + 1 : f.pos * d]::{vector}.vector
    from json_array_elements(p_fields) with ordinality f (value, pos);
end $$;

-- The caller of a search that compares vectors. Never by nested loops: without statistics, in a database that was just filled, each
-- vector would be sought among all items.
create function navin.enter_near(p_tenant text, p_parts text) returns void language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('navin.who', '', true),
    set_config('role', 'navin_app', true), set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true);
end $$;
-- The caller of a search that walks a partition's index, and how far: no longer than it takes to compare the whole partition.
-- Sorting is made to look dear, so that the walk is what the server does.
-- The list it looks through at a time has the same length for every page, so that a later page continues the same walk.
create function navin.enter_walk(p_tenant text, p_part text, p_look int) returns void language plpgsql as $$ begin
  perform navin.enter(p_tenant, p_part);
  perform set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', '100', true),
    set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
    set_config('hnsw.max_scan_tuples', least(greatest((
      select vectors / 16 from navin.ann where tenant_id = p_tenant and partition = p_part), 2 * p_look, 1000), 100000)::text, true);
end $$;

-- Partitions that deserve an index, the largest first. Who has one keeps it until half of that is left.
create function navin.large(p_at bigint, p_most int)
returns table (tenant_id text, partition text, dims int, distance text, vectors bigint) language plpgsql as $$
#variable_conflict use_column
begin
  perform navin.enter('', '', '', 'navin_maintenance');
  return query
    select c.tenant_id, c.partition, s.dims, s.distance, c.n
    from (select b.tenant_id, b.partition, sum(b.n)::bigint as n from (
        select v.tenant_id, v.partition, count(*) as n from navin.vectors v group by 1, 2
        union all select v.tenant_id, v.partition, count(*) from navin.settled v group by 1, 2) b group by 1, 2) c
    join navin.spaces s on s.tenant_id = c.tenant_id
    left join navin.ann a on a.tenant_id = c.tenant_id and a.partition = c.partition
    where s.dims <= 4000 and c.n * case when a.name is null then 1 else 2 end >= p_at
    order by c.n * case when a.name is null then 1 else 2 end desc, c.tenant_id, c.partition limit p_most;
end $$;

-- Partitions with an index and at least p_rows fresh vectors.
create function navin.unsettled(p_rows int) returns table (tenant_id text, partition text) language plpgsql as $$
#variable_conflict use_column
begin
  perform navin.enter('', '', '', 'navin_maintenance');
  return query
    select a.tenant_id, a.partition from navin.ann a cross join lateral (
      select count(*) as n from (select from navin.vectors v where v.tenant_id = a.tenant_id and v.partition = a.partition limit 10000) f) c
    where a.ready and c.n >= p_rows order by c.n desc;
end $$;

-- Move some fresh vectors of a partition; how many, or null where somebody else is at it.
-- Inserting into the index takes long, and nobody waits for it: the fresh rows are locked only for the short rest. A row that was
-- written or forgotten meanwhile, or is just now, is left to its writer, and its copy goes again before anybody sees it.
-- A reader sees the state before or after; seq tells a row from one written later under the same key.
create function navin.settle(p_tenant text, p_partition text, p_rows int) returns int language plpgsql as $$
declare spaces text[]; keys text[]; fields text[]; seqs bigint[]; copies tid[]; moved bigint[];
begin
  perform navin.enter(p_tenant, p_partition, '', 'navin_maintenance');
  if not pg_try_advisory_xact_lock(x'6E76'::int, hashtext(p_tenant || E'\x1f' || p_partition)) then return null; end if;
  with c as (
    insert into navin.settled as s (tenant_id, partition, ns, key, field, embedding, seq)
    select v.tenant_id, v.partition, v.ns, v.key, v.field, v.embedding, v.seq
    from navin.vectors v where v.tenant_id = p_tenant and v.partition = p_partition limit p_rows
    returning s.ns, s.key, s.field, s.seq, s.ctid)
  select array_agg(c.ns), array_agg(c.key), array_agg(c.field), array_agg(c.seq), array_agg(c.ctid) into spaces, keys, fields, seqs, copies from c;
  -- By the whole key and by places: a join might go through the whole partition for each row.
  with l as (
    select v.at from unnest(spaces, keys, fields, seqs) m (ns, key, field, seq) cross join lateral (
      select v.ctid as at from navin.vectors v where v.tenant_id = p_tenant and v.partition = p_partition
        and v.ns = m.ns and v.key = m.key and v.field = m.field and v.seq = m.seq offset 0 for update skip locked) v),
  g as (delete from navin.vectors v where v.ctid = any (array(select l.at from l)) returning v.seq)
  select coalesce(array_agg(g.seq), array[]::bigint[]) into moved from g;
  if cardinality(moved) < cardinality(seqs) then
    delete from navin.settled s where s.ctid = any (array(
      select m.copy from unnest(copies, seqs) m (copy, seq) where m.seq <> all (moved)));
  end if;
  return cardinality(moved);
end $$;

-- The register of indexes.
create function navin.note_ann(p_tenant text, p_partition text, p_dims int, p_distance text, p_name text, p_vectors bigint, p_ready boolean)
returns void language plpgsql as $$ begin
  perform navin.enter(p_tenant, p_partition, '', 'navin_maintenance');
  insert into navin.ann values (p_tenant, p_partition, p_dims, p_distance, p_name, p_vectors, p_ready)
    on conflict (tenant_id, partition) do update set dims = p_dims, distance = p_distance, name = p_name, vectors = p_vectors, ready = p_ready;
end $$;
create function navin.strike_ann(p_names text[]) returns void language plpgsql as $$ begin
  perform navin.enter('', '', '', 'navin_maintenance');
  delete from navin.ann where name <> all (p_names);
end $$;
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
