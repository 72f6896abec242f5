-- One function an operation, called as one autocommit statement: it sets the caller for its own transaction, compares the
-- policy epoch in the same statement as the data, and is one round trip. None is a security definer.


-- One item by its key. The first column says that the policy changed; the others are null where there is no item.
create function navin.get_one(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partition text, p_ns text, p_key text, p_refresh boolean)
returns table (stale boolean, id uuid, partition text, ns text, key text, value text, kind text, classification smallint, importance smallint,
  source text, version int, created_at timestamptz, updated_at timestamptz, expires_at timestamptz, worn boolean) language plpgsql as $$
#variable_conflict use_column
declare r record;
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  select e.stale, i.* into r
    from (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale) e
    left join lateral (
      select i.id, i.partition, coalesce(i.namespace, i.ns) as ns, i.key, i.value::text as value, i.kind, i.classification, i.importance,
        i.source::text as source, i.version, i.created_at, i.updated_at, i.expires_at,
        coalesce(i.expires_at < statement_timestamp() + i.ttl_s * interval '1 s', false) as worn
      from navin.items i where i.tenant_id = p_tenant and i.partition = p_partition and i.ns = p_ns and i.key = p_key
        and (i.expires_at is null or i.expires_at > clock_timestamp())
        and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds))) i on not e.stale;
  if r.worn and p_refresh then perform navin.refresh(p_tenant, array[r.id]); end if;
  return query select r.stale, r.id, r.partition, r.ns, r.key, r.value, r.kind, r.classification, r.importance, r.source, r.version,
    r.created_at, r.updated_at, r.expires_at, r.worn;
end $$;

-- Prolong lives after a read. A tenth more than the time asked for, so that most reads write nothing; a row that somebody
-- writes at this moment is left alone, so that readers never wait.
create function navin.refresh(p_tenant text, p_ids uuid[]) returns void language sql as $$
  update navin.items i set expires_at = clock_timestamp() + i.ttl_s * interval '1.1 s'
  from (select u.id, u.partition, u.ns, u.key from navin.items u where u.tenant_id = p_tenant and u.id = any (p_ids)
      and u.expires_at > clock_timestamp() and u.expires_at < clock_timestamp() + u.ttl_s * interval '1 s'
    order by u.partition, u.ns, u.key for update skip locked) u
  where i.tenant_id = p_tenant and i.partition = u.partition and i.ns = u.ns and i.key = u.key $$;

create function navin.refresh_as(p_tenant text, p_parts text, p_ids uuid[]) returns void language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  perform navin.refresh(p_tenant, p_ids);
end $$;

-- Many items by their keys; the position says which question a row answers.
create function navin.get_many(p_tenant text, p_parts text, p_epoch bigint, p_ceiling int, p_kinds text[], p_partitions text[], p_ns text[], p_keys text[])
returns table (stale boolean, pos bigint, id uuid, partition text, ns text, key text, value text, kind text, classification smallint, importance smallint,
  source text, version int, created_at timestamptz, updated_at timestamptz, expires_at timestamptz, worn boolean) language plpgsql as $$
#variable_conflict use_column
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('role', 'navin_app', true);
  return query
    with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale)
    select e.stale, null::bigint, null::uuid, null::text, null::text, null::text, null::text, null::text, null::smallint, null::smallint, null::text,
      null::int, null::timestamptz, null::timestamptz, null::timestamptz, null::boolean from e
    union all
    select false, k.pos, i.* from e cross join unnest(p_partitions, p_ns, p_keys) with ordinality k (partition, ns, key, pos)
    cross join lateral (
      select i.id, i.partition, coalesce(i.namespace, i.ns), i.key, i.value::text, i.kind, i.classification, i.importance,
        i.source::text, i.version, i.created_at, i.updated_at, i.expires_at,
        coalesce(i.expires_at < statement_timestamp() + i.ttl_s * interval '1 s', false)
      from navin.items i where i.tenant_id = p_tenant and i.partition = k.partition and i.ns = k.ns and i.key = k.key
        and (i.expires_at is null or i.expires_at > clock_timestamp())
        and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds)) offset 0) i
    where not e.stale;
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

-- All puts, deletes and updates of a batch: written whole, or nothing but the event of the refusal.
--   p_puts   [{o: position in its text part or null, p partition, n ns, w whole namespace or null, k key, i id, v value, f kind,
--             c classification, m importance, s source, t ttl in seconds, d lexemes, e vectors, x expected version or null,
--             u whether the item must still be the one of this id}]
--   p_gone   [{p, n, k, i id that must stand there or null}]      no place twice in both lists
--   p_texts  [{p, c, i}]      one inverted index a part
--   p_fields [{p, n, k, f}]   one a vector, in the order of p_vectors, which holds them end to end
-- The lists are json and not jsonb, whose 256 MB would limit a batch.
-- Answers one row: status ok | stale | the refusing rule; and, where p_want, per put [id sent, id, version, created, updated, expires]
-- and the places that held something to forget.
create function navin.write(p_tenant text, p_parts text, p_epoch bigint, p_who text, p_ceiling int, p_kinds text[], p_lexer int,
  p_want boolean, p_many boolean, p_puts json, p_gone json, p_texts json, p_fields json, p_vectors real[])
returns table (status text, outcome jsonb, forgot jsonb) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz; v_stale boolean := false; v_held boolean; v_lost boolean; v_asked int; v_count int; v_out jsonb; v_forgot jsonb; v_rule text;
  who text[] := string_to_array(p_who, E'\x1f');
begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true), set_config('navin.who', p_who, true),
    set_config('role', 'navin_app', true);
  -- A batch that also forgets locks what is there before it inserts; one that only puts locks as it inserts. The two orders would
  -- meet in a deadlock, so they take turns, a partition's share of 64 locks a tenant at a time.
  if p_puts is not null and (p_many or p_gone is not null) then
    perform case when p_gone is null then pg_advisory_xact_lock_shared(b.k) else pg_advisory_xact_lock(b.k) end
      from (select distinct (hashtextextended(p_tenant, 0) & ~63::bigint) | (hashtext(x.p) & 63) as k
        from unnest(string_to_array(p_parts, E'\x1f')) x (p) order by 1) b;
  end if;
  begin
    if p_gone is not null then
      -- Locks in one order over puts and deletes: two batches never wait for each other.
      select bool_or(l.held and l.dies) into v_held from (
        select i.held, x.dies from navin.items i join (
          select g.p, g.n, g.k, true as dies from json_to_recordset(p_gone) g (p text, n text, k text)
          union all select g.p, g.n, g.k, false from json_to_recordset(p_puts) g (p text, n text, k text)) x
          on i.tenant_id = p_tenant and i.partition = x.p and i.ns = x.n and i.key = x.k
        order by i.partition, i.ns, i.key for update of i) l;
      if v_held then raise exception 'legal_hold' using errcode = 'NV002'; end if;
      with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale),
      d as (delete from navin.items i using e, json_to_recordset(p_gone) g (p text, n text, k text, i uuid)
        where not e.stale and i.tenant_id = p_tenant and i.partition = g.p and i.ns = g.n and i.key = g.k and (g.i is null or i.id = g.i)
          and i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds))
        returning i.partition, i.ns, i.key, i.expires_at)
      select (select stale from e), jsonb_agg(jsonb_build_array(d.partition, d.ns, d.key)) filter (where p_want
        and (d.expires_at is null or d.expires_at > clock_timestamp())) into v_stale, v_forgot from d;
    end if;
    if p_puts is not null and not v_stale then
      v_now := clock_timestamp();
      with e as materialized (select coalesce((select epoch from navin.epochs where tenant_id = p_tenant), 0) <> p_epoch as stale),
      x as materialized (select * from json_to_recordset(p_puts) x (o int, p text, n text, w text, k text, i uuid, v jsonb, f text, c smallint,
        m smallint, s jsonb, t float8, d int, e smallint, x int, u boolean)),
      up as (
        insert into navin.items as i (tenant_id, partition, ns, key, id, namespace, value, kind, classification, importance, source, agent_id,
          ttl_s, expires_at, vid, dl, vectors, created_at, updated_at)
        select p_tenant, x.p, x.n, x.k, x.i, x.w, x.v, x.f, x.c, x.m, x.s, who[2], x.t, v_now + x.t * interval '1 s', nextval('navin.vid'), x.d, x.e, v_now, v_now
        from x, e where not e.stale order by x.p collate "C", x.n collate "C", x.k collate "C"
        on conflict (tenant_id, partition, ns, key) do update set
          id = case when i.expires_at <= v_now then excluded.id else i.id end,
          version = case when i.expires_at <= v_now then 1 else i.version + 1 end,
          created_at = case when i.expires_at <= v_now then v_now else i.created_at end,
          value = excluded.value, kind = excluded.kind, classification = excluded.classification, importance = excluded.importance,
          source = excluded.source, agent_id = excluded.agent_id, ttl_s = excluded.ttl_s, expires_at = excluded.expires_at,
          vid = excluded.vid, dl = excluded.dl, vectors = excluded.vectors, updated_at = greatest(v_now, i.updated_at)
        where not i.held and (i.expires_at <= v_now or i.classification <= p_ceiling and (p_kinds is null or i.kind = any (p_kinds)))
        returning i.partition, i.ns, i.key, i.id, i.version, i.vid, i.created_at, i.updated_at, i.expires_at),
      tx as (
        insert into navin.pending (tenant_id, partition, classification, seg, lexer, n, len, vids, dls, idx)
        select p_tenant, q.p, q.c, nextval('navin.vid'), p_lexer, g.n, g.len, g.vids, g.dls, q.i
        from (select x.p, x.c, count(*) as n, sum(x.d) as len, array_agg(up.vid order by x.o) as vids, array_agg(x.d order by x.o) as dls
          from x join up on up.partition = x.p and up.ns = x.n and up.key = x.k where x.o is not null group by x.p, x.c) g
        join json_to_recordset(p_texts) q (p text, c smallint, i jsonb) on q.p = g.p and q.c = g.c)
      select (select stale from e), (select count(*) from x), count(*), bool_or(up.version <> x.x + 1 or x.u and up.id <> x.i),
        case when p_want then jsonb_agg(jsonb_build_array(x.i, up.id, up.version, up.created_at, up.updated_at, up.expires_at)) end
        into v_stale, v_asked, v_count, v_lost, v_out from up join x on up.partition = x.p and up.ns = x.n and up.key = x.k;
      if not v_stale and v_count < v_asked then
        select case when bool_or(i.held) then 'legal_hold' when bool_or(i.classification > p_ceiling) then 'max_classification' else 'allowed_kinds' end
          into v_rule from navin.items i join json_to_recordset(p_puts) x (p text, n text, k text)
          on i.tenant_id = p_tenant and i.partition = x.p and i.ns = x.n and i.key = x.k
          where i.held or i.classification > p_ceiling or p_kinds is not null and i.kind <> all (p_kinds);
        raise exception '%', v_rule using errcode = 'NV002';
      end if;
      if v_lost then raise exception 'expected_version' using errcode = 'NV002'; end if;
      if p_fields is not null and not v_stale then perform navin.write_vectors(p_tenant, p_fields, p_vectors); end if;
    end if;
  exception when sqlstate 'NV002' then
    insert into navin.journal (tenant_id, actor, agent_id, op, allowed, rule, policy_version, trace)
      values (p_tenant, who[1], who[2], 'write', false, sqlerrm, who[3]::int, nullif(who[4], ''));
    return query select sqlerrm, null::jsonb, null::jsonb;
    return;
  end;
  return query select case when v_stale then 'stale' else 'ok' end, v_out, v_forgot;
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
