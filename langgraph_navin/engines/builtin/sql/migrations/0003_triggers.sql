-- What every change leaves behind, whoever makes it: the journal, the dead of the text index.
-- One function a kind of change, a statement at a time.

create function navin.note_new() returns trigger language plpgsql as $$
declare
  who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
  -- Asked for once and not for every row: a random number is a system call. Each salt is a hash of it that doesn't lead back.
  v_xid bigint := pg_current_xact_id()::text::bigint; v_seed bytea;
begin
  if not exists (select from fresh) then return null; end if;
  v_seed := uuid_send(gen_random_uuid());
  insert into navin.journal (tenant_id, xid, partition, actor, agent_id, op, policy_version, trace, item_id, version, digest, salt)
    select f.tenant_id, v_xid, f.partition, who[1], who[2], 'remember', who[3]::int, nullif(who[4], ''), f.id, f.version,
      sha256(f.salt || convert_to(f.value::text, 'UTF8')), f.salt
    from (select n.*, substr(sha256(v_seed || uuid_send(n.id)), 1, 16) as salt from fresh n) f;
  return null;
end $$;

-- A refreshed life changes no version and leaves no trace.
-- A plan made for one row would join the rows of a large batch by nested loops from then on: hence the setting.
create function navin.note_changed() returns trigger language plpgsql set enable_nestloop = off as $$
declare
  who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
  v_xid bigint := pg_current_xact_id()::text::bigint;
  v_expired uuid[]; v_seed bytea;
begin
  if not exists (select from kept) then return null; end if;
  v_seed := uuid_send(gen_random_uuid());
  insert into navin.journal (tenant_id, xid, partition, actor, agent_id, op, policy_version, trace, item_id, version, digest, salt, old_value, valid_from)
    select k.tenant_id, v_xid, k.partition, who[1], who[2], case when o.id = k.id then 'update' else 'remember' end, who[3]::int,
      nullif(who[4], ''), k.id, k.version, sha256(k.salt || convert_to(k.value::text, 'UTF8')), k.salt,
      case when o.id = k.id then o.value end, case when o.id = k.id then o.updated_at end
    from gone o join (select n.*, substr(sha256(v_seed || uuid_send(n.id)), 1, 16) as salt from kept n) k using (tenant_id, partition, ns, key)
    where o.vid <> k.vid;
  if exists (select from gone o where o.dl > 0) then
    insert into navin.dead (tenant_id, partition, classification, vid, dl)
      select o.tenant_id, o.partition, o.classification, o.vid, o.dl
      from gone o join kept k using (tenant_id, partition, ns, key) where o.vid <> k.vid and o.dl > 0;
  end if;
  -- An expired item that was written over is gone, with its history.
  if exists (select from gone o where o.expires_at <= clock_timestamp()) then
    insert into navin.journal (tenant_id, xid, partition, actor, agent_id, op, policy_version, trace, item_id, version)
      select o.tenant_id, v_xid, o.partition, who[1], who[2], 'expire', who[3]::int, nullif(who[4], ''), o.id, o.version
      from gone o join kept k using (tenant_id, partition, ns, key) where o.id <> k.id;
    v_expired := array(select o.id from gone o join kept k using (tenant_id, partition, ns, key) where o.id <> k.id);
    update navin.journal j set old_value = null, salt = null
      where j.tenant_id = current_setting('navin.tenant', true) and j.item_id = any (v_expired) and j.salt is not null;
  end if;
  return null;
end $$;

create function navin.note_gone() returns trigger language plpgsql as $$
declare who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
begin
  if not exists (select from gone) then return null; end if;
  insert into navin.journal (tenant_id, partition, actor, agent_id, op, policy_version, trace, item_id, version)
    select o.tenant_id, o.partition, who[1], who[2], coalesce(nullif(current_setting('navin.cause', true), ''), 'forget'),
      who[3]::int, nullif(who[4], ''), o.id, o.version from gone o;
  -- Item by item, by the index: joined as a whole, and without statistics, each would be compared with all of the history.
  update navin.journal j set old_value = null, salt = null
    from gone o cross join lateral (
      select k.ctid as at from navin.journal k where k.tenant_id = o.tenant_id and k.item_id = o.id and k.salt is not null offset 0) k
    where j.ctid = k.at;
  insert into navin.dead (tenant_id, partition, classification, vid, dl)
    select o.tenant_id, o.partition, o.classification, o.vid, o.dl from gone o where o.dl > 0;
  return null;
end $$;

create trigger note_new after insert on navin.items referencing new table as fresh for each statement execute function navin.note_new();
create trigger note_changed after update on navin.items referencing old table as gone new table as kept
  for each statement execute function navin.note_changed();
create trigger note_gone after delete on navin.items referencing old table as gone for each statement execute function navin.note_gone();
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
