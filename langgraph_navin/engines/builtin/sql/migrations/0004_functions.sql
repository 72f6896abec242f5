-- A plan is kept for every value ("force_generic_plan") where it is the same for all of them: planning anew would take longer than reading.
-- One function an operation, called as one autocommit statement: it sets the caller for its own transaction, compares the
-- policy epoch in the same statement as the data, and is one round trip. None is a security definer.


-- One item by its key. The first column says that the policy changed; the others are null where there is no item.
create function navin.get_one(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partition text, p_ns text, p_key text, p_refresh boolean)
returns table (stale boolean, id text, partition text, ns text, key text, value text, kind text, classification smallint, importance smallint,
  source text, version int, created_at timestamptz, updated_at timestamptz, expires_at timestamptz, worn boolean) language plpgsql as $$
#variable_conflict use_column
declare r record;
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  select e.stale, i.* into r
    from (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale) e
    left join lateral (
      select i.id::text, i.partition, coalesce(i.namespace, i.ns) as ns, i.key, i.value::text as value, i.kind, i.classification, i.importance,
        i.source::text as source, i.version, i.created_at, i.updated_at, i.expires_at,
        coalesce(i.expires_at < statement_timestamp() + i.ttl_s * interval '1 s', false) as worn
      from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition and i.ns = p_ns and i.key = p_key
        and (i.expires_at is null or i.expires_at > clock_timestamp())
        and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds))) i on not e.stale;
  if r.worn and p_refresh then perform navin.refresh(p_tenant, array[r.id::uuid]); end if;
  return query select r.stale, r.id, r.partition, r.ns, r.key, r.value, r.kind, r.classification, r.importance, r.source, r.version,
    r.created_at, r.updated_at, r.expires_at, r.worn;
end $$;

-- Prolong lives after a read. A tenth more than the time asked for, so that most reads write nothing; a row that somebody
-- writes at this moment is left alone, so that readers never wait.
create function navin.refresh(p_tenant text, p_ids uuid[]) returns void language sql as $$
  update navin.items i set expires_at = clock_timestamp() + i.ttl_s * interval '1.1 s'
  from (select u.id, u.partition, u.ns, u.key from navin.items u where u.tenant_id = p_tenant and u.id > '00000000-0000-0000-0000-000000000000' and u.id = any (p_ids)
      and u.expires_at > clock_timestamp() and u.expires_at < clock_timestamp() + u.ttl_s * interval '1 s'
    order by u.partition, u.ns, u.key for update skip locked) u
  where i.tenant_id = p_tenant and i.partition = u.partition and i.ns = u.ns and i.key = u.key $$;

create function navin.refresh_as(p_tenant text, p_parts text, p_ids uuid[]) returns void language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  perform navin.refresh(p_tenant, p_ids);
end $$;

-- Many items by their keys; the position says which question a row answers.
create function navin.get_many(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partitions text[], p_ns text[], p_keys text[])
returns table (stale boolean, pos bigint, id text, partition text, ns text, key text, value text, kind text, classification smallint, importance smallint,
  source text, version int, created_at timestamptz, updated_at timestamptz, expires_at timestamptz, worn boolean) language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  return query
    with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale)
    select e.stale, null::bigint, null::text, null::text, null::text, null::text, null::text, null::text, null::smallint, null::smallint, null::text,
      null::int, null::timestamptz, null::timestamptz, null::timestamptz, null::boolean from e
    union all
    select false, k.pos, i.* from e cross join unnest(p_partitions, p_ns, p_keys) with ordinality k (partition, ns, key, pos)
    cross join lateral (
      select i.id::text, i.partition, coalesce(i.namespace, i.ns), i.key, i.value::text, i.kind, i.classification, i.importance,
        i.source::text, i.version, i.created_at, i.updated_at, i.expires_at,
        coalesce(i.expires_at < statement_timestamp() + i.ttl_s * interval '1 s', false)
      from navin.items i where i.tenant_id = p_tenant and i.partition = k.partition and i.ns = k.ns and i.key = k.key
        and (i.expires_at is null or i.expires_at > clock_timestamp())
        and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds)) offset 0) i
    where not e.stale;
end $$;

-- Items of one partition, newest first, whose value holds p_equal. p_from and p_to bound the namespace.
-- Two plans, chosen by what is there and not by statistics: few rows under the prefix are fetched and sorted; where there are many, or
-- the prefix is known to cover the partition (p_walk), the index on time is walked until the page is full.
create function navin.newest(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partition text, p_from text, p_to text,
  p_walk boolean, p_equal jsonb, p_limit int, p_offset int)
returns table (stale boolean, id text, partition text, ns text, key text, value text, kind text, classification smallint, importance smallint,
  source text, version int, created_at timestamptz, updated_at timestamptz, expires_at timestamptz, worn boolean) language plpgsql
-- Without statistics, fetching a whole partition and sorting it looks as cheap as the walk.
set enable_sort = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  if p_walk or (select count(*) from (select from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition
      and i.ns >= p_from and i.ns < p_to limit 500) x) = 500 then
    return query
      with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale)
      select e.stale, i.* from e left join lateral (
        select i.id::text, i.partition, coalesce(i.namespace, i.ns), i.key, i.value::text, i.kind, i.classification, i.importance, i.source::text,
          i.version, i.created_at, i.updated_at, i.expires_at, coalesce(i.expires_at < clock_timestamp() + i.ttl_s * interval '1 s', false)
        from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition and i.updated_at > '-infinity'
          -- Not by the primary key, which would read all of a large namespace first.
          and (i.ns || '') >= p_from and (i.ns || '') < p_to
          and (i.expires_at is null or i.expires_at > clock_timestamp()) and i.classification <= p_ceiling
          and (p_kinds is null or i.kind = any (p_kinds)) and (p_equal is null or i.value @> p_equal)
        order by i.updated_at desc, i.ns, i.key limit p_limit offset p_offset) i on not e.stale;
  else
    return query
      with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale)
      select e.stale, i.* from e left join lateral (
        select i.id::text, i.partition, coalesce(i.namespace, i.ns), i.key, i.value::text, i.kind, i.classification, i.importance, i.source::text,
          i.version, i.created_at, i.updated_at, i.expires_at, coalesce(i.expires_at < clock_timestamp() + i.ttl_s * interval '1 s', false)
        from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition and i.ns >= p_from and i.ns < p_to
          and (i.expires_at is null or i.expires_at > clock_timestamp()) and i.classification <= p_ceiling
          and (p_kinds is null or i.kind = any (p_kinds)) and (p_equal is null or i.value @> p_equal)
        order by i.updated_at desc, i.ns, i.key limit p_limit offset p_offset) i on not e.stale;
  end if;
end $$;

-- Namespaces of one partition that hold something, cut to a depth, sorted by their labels.
-- Where there are many rows, one probe a namespace instead of all rows.
create function navin.namespaces(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partition text, p_from text, p_to text,
  p_depth int, p_limit int, p_offset int) returns table (stale boolean, cut text) language plpgsql
set enable_sort = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_names text[]; v_count int;
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  select count(*), array_agg(distinct x.name) filter (where x.seen) into v_count, v_names from (
    select coalesce(i.namespace, i.ns) as name, (i.expires_at is null or i.expires_at > clock_timestamp()) and i.classification <= p_ceiling
      and (p_kinds is null or i.kind = any (p_kinds)) as seen
    from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition and i.ns >= p_from and i.ns < p_to limit 1000) x;
  if v_count = 1000 then
    v_names := array(
      with recursive w as (
        (select i.ns, coalesce(i.namespace, i.ns) as whole from navin.items i
          where i.tenant_id = p_tenant and i.partition = p_partition and i.ns >= p_from and i.ns < p_to
            and (i.expires_at is null or i.expires_at > clock_timestamp()) and i.classification <= p_ceiling
            and (p_kinds is null or i.kind = any (p_kinds)) order by i.ns limit 1)
        union all
        select n.* from w cross join lateral (
          select i.ns, coalesce(i.namespace, i.ns) from navin.items i
          where i.tenant_id = p_tenant and i.partition = p_partition and i.ns > w.ns and i.ns < p_to
            and (i.expires_at is null or i.expires_at > clock_timestamp()) and i.classification <= p_ceiling
            and (p_kinds is null or i.kind = any (p_kinds)) order by i.ns limit 1) n)
      select w.whole from w);
  end if;
  -- Compared after the reading: what was read belongs to this decision.
  return query
    with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale)
    select e.stale, n.cut from e left join lateral (
      select distinct array_to_string((string_to_array(left(x.name, -1), E'\x1f'))[1 : p_depth], E'\x1f') collate "C" as cut
      from unnest(v_names) x (name) order by 1 limit p_limit offset p_offset) n on not e.stale;
end $$;

-- The partitions of some scopes. Only this function opens the list, for its own transaction.
create function navin.partitions_of(p_tenant text, p_scopes text[]) returns table (partition text) language plpgsql as $$
#variable_conflict use_column
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', '', true), set_config('navin.span', 'on', true),
    set_config('role', 'navin_app', true);
  return query select p.partition from navin.partitions p where p.tenant_id = p_tenant and p.scope = any (p_scopes) order by p.partition;
  perform set_config('navin.span', 'off', true);
end $$;

create function navin.epoch_of(p_tenant text) returns bigint language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', '', true), set_config('role', 'navin_app', true);
  return coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0);
end $$;

-- Refusals, each with its rule. p_events: [{"op", "rule"}].
create function navin.refuse(p_tenant text, p_who text, p_events jsonb) returns void language plpgsql as $$
declare who text[] := string_to_array(p_who, E'\x1f');
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', '', true), set_config('role', 'navin_app', true);
  insert into navin.journal (tenant_id, actor, agent_id, op, allowed, rule, policy_version, trace)
    select p_tenant, who[1], who[2], x.op, false, x.rule, who[3]::int, nullif(who[4], '')
    from jsonb_to_recordset(p_events) x (op text, rule text);
end $$;

-- All puts, deletes and updates of a batch: written whole or not at all.
--   p_puts   [{o: position in this list, from 1, p partition, n ns, k key, i id, v value, f kind, c classification; and where there is one:
--             w whole namespace, m importance, s source, t ttl in seconds, d lexemes, e vectors, x expected version,
--             u whether the item must still be the one of this id}]
--   p_gone   [{p, n, k, i id that must stand there or null}]      no place twice in both lists
--   p_texts  [{p, c, l lexemes in all, v positions in p_puts, d lexemes of each, i}]      one inverted index a part
--   p_fields [{p, n, k, f}]   one a vector, in the order of p_vectors, which holds them end to end
-- The lists are json and not jsonb, whose 256 MB would limit a batch.
-- Answers one row, where p_told: per put [id sent, id, version, created, updated, expires]; and the places that held something to forget.
-- Raises NV001 when the policy changed since the decision, NV002 with the rule by which what stands there refuses.
create function navin.write(p_tenant text, p_parts text, p_epoch bigint, p_who text, p_ceiling int, p_kinds text[], p_lexer int,
  p_count int, p_told boolean, p_puts json, p_gone json, p_texts json, p_fields json, p_vectors real[], out outcome jsonb, out forgot jsonb)
-- A record and not a table, which would be made and filled for one row.
returns record language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz; v_stale boolean; v_held boolean; v_lost boolean; v_count int; v_rule text; v_vids bigint[];
  v_parts text[] := string_to_array(p_parts, E'\x1f');
  v_agent text := split_part(p_who, E'\x1f', 2);
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('navin.who', p_who, true),
    set_config('role', 'navin_app', true);
  -- A batch that also forgets locks what is there before it inserts; one that only puts locks as it inserts. The two orders would
  -- meet in a deadlock, so they take turns, a partition's share of 64 locks a tenant at a time.
  if p_count > 1 or p_count > 0 and p_gone is not null then
    perform case when p_gone is null then pg_advisory_xact_lock_shared(b.k) else pg_advisory_xact_lock(b.k) end
      from (select distinct (hashtextextended(p_tenant, 0) & ~63::bigint) | (hashtext(x.p) & 63) as k
        from unnest(v_parts) x (p) order by 1) b;
  end if;
  if p_gone is not null then
    -- Locks in one order over puts and deletes: two batches never wait for each other. Only what was locked is deleted: a row that
    -- appears meanwhile would be locked out of turn.
    with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale),
    l as materialized (
      select i.partition, i.ns, i.key, i.held, x.dies, x.i from navin.items i join (
        select g.p, g.n, g.k, g.i, true as dies from json_to_recordset(p_gone) g (p text, n text, k text, i uuid)
        union all select g.p, g.n, g.k, null, false from json_to_recordset(p_puts) g (p text, n text, k text)) x
        on i.tenant_id = p_tenant and i.partition = x.p and i.ns = x.n and i.key = x.k
      order by i.partition, i.ns, i.key for update of i),
    d as (delete from navin.items i using e, l
      where not e.stale and l.dies and i.tenant_id = p_tenant and i.partition = l.partition and i.ns = l.ns and i.key = l.key
        and (l.i is null or i.id = l.i) and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds))
      returning i.partition, i.ns, i.key, i.expires_at)
    select (select stale from e), (select bool_or(l.held) from l where l.dies), jsonb_agg(jsonb_build_array(d.partition, d.ns, d.key))
      filter (where p_told and (d.expires_at is null or d.expires_at > clock_timestamp())) into v_stale, v_held, forgot from d;
    if v_stale then raise exception 'stale' using errcode = 'NV001'; end if;
    if v_held then raise exception 'legal_hold' using errcode = 'NV002'; end if;
  end if;
  if p_count > 0 then
    if (select count(*) from navin.partitions p where p.tenant_id = p_tenant and p.partition = any (v_parts)) < cardinality(v_parts) then
      insert into navin.partitions (tenant_id, partition, scope)
        select p_tenant, x.p, split_part(split_part(x.p, ':', 1), '#', 1) from unnest(v_parts) x (p) order by x.p collate "C" on conflict do nothing;
    end if;
    v_now := clock_timestamp();
    v_vids := case p_count when 1 then array[nextval('navin.vid')] else array(select nextval('navin.vid') from generate_series(1, p_count)) end;
    insert into navin.items as i (tenant_id, partition, ns, key, id, namespace, value, kind, classification, importance, source, agent_id,
      ttl_s, expires_at, vid, dl, vectors, created_at, updated_at)
    select p_tenant, x.p, x.n, x.k, x.i, x.w, x.v, x.f, x.c, x.m, x.s, v_agent, x.t, v_now + x.t * interval '1 s', v_vids[x.o], coalesce(x.d, 0), coalesce(x.e, 0), v_now, v_now
    from json_to_recordset(p_puts) x (o int, p text, n text, w text, k text, i uuid, v jsonb, f text, c smallint, m smallint, s jsonb,
      t float8, d int, e smallint)
    where coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) = p_epoch
    order by x.p collate "C", x.n collate "C", x.k collate "C"
    on conflict (tenant_id, partition, ns, key) do update set
      id = case when i.expires_at <= v_now then excluded.id else i.id end,
      version = case when i.expires_at <= v_now then 1 else i.version + 1 end,
      created_at = case when i.expires_at <= v_now then v_now else i.created_at end,
      value = excluded.value, kind = excluded.kind, classification = excluded.classification, importance = excluded.importance,
      source = excluded.source, agent_id = excluded.agent_id, ttl_s = excluded.ttl_s, expires_at = excluded.expires_at,
      vid = excluded.vid, dl = excluded.dl, vectors = excluded.vectors, updated_at = greatest(v_now, i.updated_at)
    where not i.held and (i.expires_at <= v_now or i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds)));
    get diagnostics v_count = row_count;
    if v_count < p_count then
      -- Either the policy changed and nothing was inserted, or what stands in some places refuses.
      if v_count = 0 and coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch then
        raise exception 'stale' using errcode = 'NV001';
      end if;
      select case when bool_or(i.held) then 'legal_hold' when bool_or(i.classification > p_ceiling) then 'max_classification' else 'allowed_kinds' end
        into v_rule from navin.items i join json_to_recordset(p_puts) x (p text, n text, k text)
        on i.tenant_id = p_tenant and i.partition = x.p and i.ns = x.n and i.key = x.k
        where i.held or i.classification > p_ceiling or p_kinds is not null and i.kind <> all (p_kinds);
      raise exception '%', v_rule using errcode = 'NV002';
    end if;
    if p_told then
      select bool_or(i.version <> x.x + 1 or x.u and i.id <> x.i),
        jsonb_agg(jsonb_build_array(x.i, i.id, i.version, i.created_at, i.updated_at, i.expires_at)) into v_lost, outcome
        from json_to_recordset(p_puts) x (p text, n text, k text, i uuid, x int, u boolean)
        join navin.items i on i.tenant_id = p_tenant and i.partition = x.p and i.ns = x.n and i.key = x.k;
      if v_lost then raise exception 'expected_version' using errcode = 'NV002'; end if;
    end if;
    if p_texts is not null then
      insert into navin.pending (tenant_id, partition, classification, seg, lexer, n, len, vids, dls, idx)
      select p_tenant, q.p, q.c, nextval('navin.vid'), p_lexer, cardinality(q.v), q.l,
        array(select v_vids[u.o] from unnest(q.v) with ordinality u (o, at) order by u.at), q.d, q.i
      from json_to_recordset(p_texts) q (p text, c smallint, l bigint, v int[], d int[], i jsonb);
    end if;
    if p_fields is not null then perform navin.write_vectors(p_tenant, p_fields, p_vectors); end if;
  end if;
end $$;

-- One put, the commonest write, as `write` would do it: a document of one element would cost more than the insert.
-- The columns of the item come one by one; p_text is the inverted index {lexeme: [1 << 10 | term frequency]} or null.
create function navin.put_one(p_tenant text, p_partition text, p_epoch bigint, p_who text, p_ceiling int, p_kinds text[], p_lexer int,
  p_ns text, p_whole text, p_key text, p_id uuid, p_value jsonb, p_kind text, p_classification int, p_importance int, p_source jsonb,
  p_ttl float8, p_length int, p_count int, p_text jsonb, p_fields json, p_vectors real[]) returns void language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp(); v_vid bigint := nextval('navin.vid'); v_count int;
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_partition, true), set_config('navin.who', p_who, true),
    set_config('role', 'navin_app', true);
  if not exists (select from navin.partitions p where p.tenant_id = p_tenant and p.partition = p_partition) then
    insert into navin.partitions (tenant_id, partition, scope)
      values (p_tenant, p_partition, split_part(split_part(p_partition, ':', 1), '#', 1)) on conflict do nothing;
  end if;
  insert into navin.items as i (tenant_id, partition, ns, key, id, namespace, value, kind, classification, importance, source, agent_id,
    ttl_s, expires_at, vid, dl, vectors, created_at, updated_at)
  select p_tenant, p_partition, p_ns, p_key, p_id, p_whole, p_value, p_kind, p_classification, p_importance, p_source, split_part(p_who, E'\x1f', 2),
    p_ttl, v_now + p_ttl * interval '1 s', v_vid, p_length, p_count, v_now, v_now
  where coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) = p_epoch
  on conflict (tenant_id, partition, ns, key) do update set
    id = case when i.expires_at <= v_now then excluded.id else i.id end,
    version = case when i.expires_at <= v_now then 1 else i.version + 1 end,
    created_at = case when i.expires_at <= v_now then v_now else i.created_at end,
    value = excluded.value, kind = excluded.kind, classification = excluded.classification, importance = excluded.importance,
    source = excluded.source, agent_id = excluded.agent_id, ttl_s = excluded.ttl_s, expires_at = excluded.expires_at,
    vid = excluded.vid, dl = excluded.dl, vectors = excluded.vectors, updated_at = greatest(v_now, i.updated_at)
  where not i.held and (i.expires_at <= v_now or i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds)));
  get diagnostics v_count = row_count;
  -- Which of the two it was is found out by `write_noted`.
  if v_count = 0 then raise exception 'refused' using errcode = 'NV002'; end if;
  if p_text is not null then
    insert into navin.pending (tenant_id, partition, classification, seg, lexer, n, len, vids, dls, idx)
      values (p_tenant, p_partition, p_classification, nextval('navin.vid'), p_lexer, 1, p_length, array[v_vid], array[p_length], p_text);
  end if;
  if p_fields is not null then perform navin.write_vectors(p_tenant, p_fields, p_vectors); end if;
end $$;

-- The same for a batch that was refused: what refuses it now goes to the journal, and nothing else is written. The first column is the rule.
create function navin.write_noted(p_tenant text, p_parts text, p_epoch bigint, p_who text, p_ceiling int, p_kinds text[], p_lexer int,
  p_count int, p_told boolean, p_puts json, p_gone json, p_texts json, p_fields json, p_vectors real[])
returns table (rule text, outcome jsonb, forgot jsonb) language plpgsql as $$
declare
  who text[] := string_to_array(p_who, E'\x1f');
begin
  return query select null::text, w.outcome, w.forgot from navin.write(p_tenant, p_parts, p_epoch, p_who, p_ceiling, p_kinds, p_lexer,
    p_count, p_told, p_puts, p_gone, p_texts, p_fields, p_vectors) w;
exception when sqlstate 'NV002' then
  perform navin.enter(p_tenant, '', p_who);
  insert into navin.journal (tenant_id, actor, agent_id, op, allowed, rule, policy_version, trace)
    values (p_tenant, who[1], who[2], 'write', false, sqlerrm, who[3]::int, nullif(who[4], ''));
  return query select sqlerrm, null::jsonb, null::jsonb;
end $$;

-- Expired items that a sweep takes away, oldest first. Rows in use are left for the next one.
create function navin.sweep(p_limit int) returns int language plpgsql as $$
declare n int;
begin
  perform navin.enter('', '', E'maintenance\x1f-\x1f0\x1f', 'navin_maintenance');
  perform set_config('navin.cause', 'expire', true);
  with x as (select i.tenant_id, i.partition, i.ns, i.key from navin.items i
      where i.expires_at <= statement_timestamp() and not i.held order by i.expires_at limit p_limit for update skip locked),
  d as (delete from navin.items i using x where i.tenant_id = x.tenant_id and i.partition = x.partition and i.ns = x.ns and i.key = x.key
    and i.expires_at <= clock_timestamp() returning 1)
  select count(*) into n from d;
  return n;
end $$;

-- Parts whose text index has grown into many small rows, or that still index what is dead.
create function navin.uncompacted(p_lexer int, p_small int, p_rows int, p_dead int, p_limit int)
returns table (tenant_id text, partition text, classification smallint) language plpgsql as $$
#variable_conflict use_column
begin
  perform navin.enter('', '', '', 'navin_maintenance');
  return query
    (select p.tenant_id, p.partition, p.classification from navin.pending p where p.lexer = p_lexer and p.n < p_small
      group by 1, 2, 3 having count(*) >= p_rows order by count(*) desc limit p_limit)
    union
    (select d.tenant_id, d.partition, d.classification from navin.dead d group by 1, 2, 3 having count(*) >= p_dead limit p_limit);
end $$;
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
