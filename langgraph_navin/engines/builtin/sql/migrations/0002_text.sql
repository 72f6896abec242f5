-- The text index: small inverted indexes, one a write, so that writers share no row. A part is a partition and a
-- classification: document frequencies of what a caller may not see must not reach his scores.
create table navin.pending (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  classification smallint not null,
  seg bigint not null,
  lexer smallint not null,
  n bigint not null,                           -- documents with a text
  len bigint not null,                         -- lexemes in all of them
  vids bigint[] not null,
  dls int[] not null,
  idx jsonb not null,                          -- {lexeme: [position in vids << 10 | term frequency, …]}
  primary key (tenant_id, partition, classification, seg)
);
-- Versions that are no longer live and still stand in an index row. Searches subtract them; compaction drops both.
create table navin.dead (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  classification smallint not null,
  vid bigint not null,
  dl int not null,
  primary key (tenant_id, partition, classification, vid)
);
alter table navin.pending set (autovacuum_vacuum_scale_factor = 0.02);
alter table navin.dead set (autovacuum_vacuum_scale_factor = 0.02);
alter table navin.pending enable row level security;
alter table navin.pending force row level security;
alter table navin.dead enable row level security;
alter table navin.dead force row level security;
create policy app on navin.pending to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app on navin.dead to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy maintenance on navin.pending to navin_maintenance using (true);
create policy maintenance on navin.dead to navin_maintenance using (true);
grant select, insert on navin.pending, navin.dead to navin_app;
-- A row lock (for update skip locked) needs the right to update.
grant select, insert, update, delete on navin.pending, navin.dead to navin_maintenance;

-- Everything BM25 needs of a caller's parts, in one snapshot: postings, counts, the dead. The client scores.
-- data is array_send(bigint[]): 20 bytes of header, then 12 bytes an element (vid << 24 | dl << 10 | tf).
-- Concatenating an empty value detoasts a row's index once instead of once a lexeme.
create function navin.text_hits(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_partitions text[], p_lexer int, p_lexemes text[])
returns table (stale boolean, lexeme text, data bytea, n bigint, len bigint, vid bigint) language plpgsql as $$
#variable_conflict use_column
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  return query
    with p as materialized (
      select p.n, p.len, p.vids || '{}'::bigint[] as vids, p.dls || '{}'::int[] as dls, p.idx || '{}'::jsonb as idx from navin.pending p
      where p.tenant_id = p_tenant and p.partition = any (p_partitions) and p.classification <= p_ceiling and p.lexer = p_lexer)
    select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch, null::text, null::bytea, null::bigint, null::bigint, null::bigint
    union all select null, l, array_send(array(
      select (p.vids[v::int >> 10] << 24) | ((p.dls[v::int >> 10])::bigint << 10) | (v::int & 1023) from jsonb_array_elements_text(p.idx -> l) v)),
      null, null, null from p, unnest(p_lexemes) l where p.idx ? l
    union all select null, null, null, p.n, p.len, null from p
    union all select null, null, null, null, d.dl, d.vid from navin.dead d
      where d.tenant_id = p_tenant and d.partition = any (p_partitions) and d.classification <= p_ceiling
    -- What has expired counts as dead before it is swept. A stable clock, so that the index on ends is used.
    union all select null, null, null, null, i.dl, i.vid from navin.items i
      where i.tenant_id = p_tenant and i.partition = any (p_partitions) and i.classification <= p_ceiling
        and i.expires_at <= statement_timestamp() and i.dl > 0;
end $$;

-- Many index rows of a part become one, without the dead. Readers see one state or the other.
create function navin.compact(p_tenant text, p_partition text, p_classification int, p_lexer int, p_small int, p_rows int) returns int
-- Its lists come without statistics: joined by nested loops, a large part would take minutes.
language plpgsql set enable_nestloop = off as $$
declare took int;
begin
  perform navin.enter(p_tenant, p_partition, '', 'navin_maintenance');
  -- Rows that hold a dead version are rewritten whatever their size: what was forgotten must leave the index.
  with l as (
    delete from navin.pending p where p.tenant_id = p_tenant and p.partition = p_partition and p.classification = p_classification
      and p.seg in (select s.seg from navin.pending s where s.tenant_id = p_tenant and s.partition = p_partition
        and s.classification = p_classification and s.lexer = p_lexer and (s.n < p_small or s.seg in (
          select q.seg from navin.pending q cross join unnest(q.vids) v join navin.dead d
            on d.tenant_id = p_tenant and d.partition = p_partition and d.classification = p_classification and d.vid = v
          where q.tenant_id = p_tenant and q.partition = p_partition and q.classification = p_classification))
        order by s.seg limit p_rows for update skip locked)
    returning p.seg, p.vids, p.dls, p.idx),
  e as (select l.seg, u.at, u.vid, u.dl from l, unnest(l.vids, l.dls) with ordinality u (vid, dl, at)),
  g as (delete from navin.dead d where d.tenant_id = p_tenant and d.partition = p_partition and d.classification = p_classification
    and d.vid in (select e.vid from e) returning d.vid),
  k as (select e.*, row_number() over (order by e.seg, e.at) as pos from e where e.vid not in (select g.vid from g)),
  x as (select j.key as lexeme, jsonb_agg((k.pos << 10) | (v::int & 1023) order by k.pos) as at
    from l cross join jsonb_each(l.idx) j cross join jsonb_array_elements_text(j.value) v
    join k on k.seg = l.seg and k.at = (v::int >> 10) group by j.key),
  made as (insert into navin.pending (tenant_id, partition, classification, seg, lexer, n, len, vids, dls, idx)
    select p_tenant, p_partition, p_classification, nextval('navin.vid'), p_lexer, count(*), sum(k.dl),
      array_agg(k.vid order by k.pos), array_agg(k.dl order by k.pos), (select coalesce(jsonb_object_agg(x.lexeme, x.at), '{}') from x)
    from k having count(*) > 0)
  select count(*) into took from l;
  return took;
end $$;
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
