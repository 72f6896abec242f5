-- Roles, items, journal. Every table: tenant_id first in every key, row-level security forced on tenant and partition.
-- Two roles own nothing: navin_app serves callers, navin_maintenance sweeps and compacts. Neither bypasses row-level security.
do $$ begin
  if not exists (select from pg_roles where rolname = 'navin_app') then create role navin_app nologin; end if;
exception when duplicate_object or unique_violation then null; end $$;
do $$ begin
  if not exists (select from pg_roles where rolname = 'navin_maintenance') then create role navin_maintenance nologin; end if;
exception when duplicate_object or unique_violation then null; end $$;
-- The migrating role may act as both. Since PostgreSQL 16, who makes a role is a member that may not yet become it.
do $$
declare act text := case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end;
begin
  if not pg_has_role(current_user, 'navin_app', act) then execute format('grant navin_app to %I', current_user); end if;
  if not pg_has_role(current_user, 'navin_maintenance', act) then execute format('grant navin_maintenance to %I', current_user); end if;
end $$;
grant usage on schema navin to navin_app, navin_maintenance;

-- The tenant's policy epoch: every statement compares it, so that no decision outlives the policy it was made under.
create table navin.epochs (
  tenant_id text collate "C" primary key,
  epoch bigint not null
);

-- Which partitions hold something: reads across partitions iterate it, since a wildcard in a policy loses the index.
create table navin.partitions (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  scope text collate "C" not null,
  primary key (tenant_id, scope, partition)
);

-- A version of a text, for the text index: 2^39 of them fit into a packed posting.
create sequence navin.vid;

create table navin.items (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  ns text collate "C" not null,                -- labels, each followed by U+001F; a long one is its beginning and a hash
  key text collate "C" not null,
  id uuid not null,
  namespace text collate "C",                  -- the whole namespace where ns is not
  value jsonb not null,
  kind text collate "C" not null,
  classification smallint not null,
  importance smallint,
  source jsonb,
  agent_id text collate "C" not null,
  held boolean not null default false,
  ttl_s float8,
  expires_at timestamptz,
  version int not null default 1,
  vid bigint not null,
  dl int not null,                             -- lexemes in the text index, 0 for none
  vectors smallint not null default 0,         -- how many it has
  created_at timestamptz not null,
  updated_at timestamptz not null,
  primary key (tenant_id, partition, ns, key)
);
create unique index items_id on navin.items (tenant_id, id);
create unique index items_vid on navin.items (tenant_id, partition, vid);
create index items_newest on navin.items (tenant_id, partition, updated_at desc, ns, key);
create index items_expiry on navin.items (expires_at) where expires_at is not null;

-- Audit and history in one row: what stands beside the digest is content and dies with the item.
create table navin.journal (
  tenant_id text collate "C" not null,
  seq bigint generated always as identity,
  xid bigint not null default pg_current_xact_id()::text::bigint,
  at timestamptz not null default clock_timestamp(),
  partition text collate "C",
  actor text not null,
  agent_id text not null,
  op text not null,
  allowed boolean not null default true,
  rule text,
  policy_version int not null,
  trace text,
  item_id uuid,
  version int,
  digest bytea,                                -- sha256(salt, new value)
  salt uuid,
  old_value jsonb,
  valid_from timestamptz,                      -- of old_value; it was valid until "at"
  primary key (tenant_id, seq)
);
create index journal_item on navin.journal (tenant_id, item_id, version) where salt is not null;
create index journal_xid on navin.journal using brin (xid) with (pages_per_range = 16);

alter table navin.epochs enable row level security;
alter table navin.epochs force row level security;
alter table navin.partitions enable row level security;
alter table navin.partitions force row level security;
alter table navin.items enable row level security;
alter table navin.items force row level security;
alter table navin.journal enable row level security;
alter table navin.journal force row level security;

-- The plain stable call is estimated when planned and becomes an index condition; the (select …) form is evaluated once
-- a statement, which suits the check of new rows.
create policy app on navin.epochs for select to navin_app using (tenant_id = current_setting('navin.tenant', true));
create policy app on navin.partitions to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and (partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')) or current_setting('navin.span', true) = 'on'))
  with check (tenant_id = current_setting('navin.tenant', true)
    and partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')));
create policy app on navin.items to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app_reads on navin.journal for select to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')));
create policy app_adds on navin.journal for insert to navin_app
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and (partition is null or partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[])));
-- Append-only: the one change the application may make is to erase content.
create policy app_erases on navin.journal for update to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')))
  with check (old_value is null and salt is null);
create policy maintenance on navin.epochs for select to navin_maintenance using (true);
create policy maintenance on navin.partitions to navin_maintenance using (true);
create policy maintenance on navin.items to navin_maintenance using (true);
create policy maintenance on navin.journal to navin_maintenance using (true);

grant select on navin.epochs to navin_app, navin_maintenance;
grant select, insert on navin.partitions to navin_app;
grant select, delete on navin.partitions to navin_maintenance;
grant select, insert, update, delete on navin.items to navin_app;
grant select, update, delete on navin.items to navin_maintenance;
grant select, insert on navin.journal to navin_app, navin_maintenance;
grant update (old_value, salt) on navin.journal to navin_app, navin_maintenance;
grant usage on sequence navin.vid to navin_app, navin_maintenance;

-- Who acts, for this transaction only: settings of a session would reach the next caller behind a pooler.
create function navin.enter(p_tenant text, p_parts text, p_who text default '', p_role text default 'navin_app') returns void
language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true),
          set_config('navin.who', p_who, true), set_config('role', p_role, true);
end $$;

-- p_who holds four parts joined by U+001F: actor, agent, policy version, trace.
create function navin.note_new() returns trigger language plpgsql as $$
declare who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
begin
  if not exists (select from fresh) then return null; end if;
  insert into navin.partitions (tenant_id, partition, scope)
    select f.tenant_id, f.partition, (regexp_match(f.partition, '^[a-z_]+'))[1] from fresh f
    where not exists (select from navin.partitions p where p.tenant_id = f.tenant_id and p.partition = f.partition
      and p.scope = (regexp_match(f.partition, '^[a-z_]+'))[1])
    group by 1, 2, 3 order by 1, 2, 3 on conflict do nothing;
  insert into navin.journal (tenant_id, partition, actor, agent_id, op, policy_version, trace, item_id, version, digest, salt)
    select f.tenant_id, f.partition, who[1], who[2], 'remember', who[3]::int, nullif(who[4], ''), f.id, f.version,
      sha256(uuid_send(f.salt) || convert_to(f.value::text, 'UTF8')), f.salt
    from (select n.*, gen_random_uuid() as salt from fresh n) f;
  return null;
end $$;

-- A refreshed life changes no version and leaves no trace.
-- A plan made for one row would join the rows of a large batch by nested loops from then on: hence the setting.
create function navin.note_changed() returns trigger language plpgsql set enable_nestloop = off as $$
declare
  who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
  v_expired uuid[];
begin
  if not exists (select from kept) then return null; end if;
  insert into navin.journal (tenant_id, partition, actor, agent_id, op, policy_version, trace, item_id, version, digest, salt, old_value, valid_from)
    select k.tenant_id, k.partition, who[1], who[2], case when o.id = k.id then 'update' else 'remember' end, who[3]::int,
      nullif(who[4], ''), k.id, k.version, sha256(uuid_send(k.salt) || convert_to(k.value::text, 'UTF8')), k.salt,
      case when o.id = k.id then o.value end, case when o.id = k.id then o.updated_at end
    from gone o join (select n.*, gen_random_uuid() as salt from kept n) k using (tenant_id, partition, ns, key)
    where o.vid <> k.vid;
  -- An expired item that was written over is gone, with its history.
  insert into navin.journal (tenant_id, partition, actor, agent_id, op, policy_version, trace, item_id, version)
    select o.tenant_id, o.partition, who[1], who[2], 'expire', who[3]::int, nullif(who[4], ''), o.id, o.version
    from gone o join kept k using (tenant_id, partition, ns, key) where o.id <> k.id;
  if found then
    v_expired := array(select o.id from gone o join kept k using (tenant_id, partition, ns, key) where o.id <> k.id);
    update navin.journal j set old_value = null, salt = null
      where j.tenant_id = current_setting('navin.tenant', true) and j.item_id = any (v_expired) and j.salt is not null;
  end if;
  return null;
end $$;

create function navin.note_gone() returns trigger language plpgsql as $$
declare who text[] := string_to_array(current_setting('navin.who', true), E'\x1f');
begin
  insert into navin.journal (tenant_id, partition, actor, agent_id, op, policy_version, trace, item_id, version)
    select o.tenant_id, o.partition, who[1], who[2], coalesce(nullif(current_setting('navin.cause', true), ''), 'forget'),
      who[3]::int, nullif(who[4], ''), o.id, o.version from gone o;
  update navin.journal j set old_value = null, salt = null from gone o
    where j.tenant_id = o.tenant_id and j.item_id = o.id and j.salt is not null;
  return null;
end $$;

create trigger note_new after insert on navin.items referencing new table as fresh for each statement execute function navin.note_new();
create trigger note_changed after update on navin.items referencing old table as gone new table as kept
  for each statement execute function navin.note_changed();
create trigger note_gone after delete on navin.items referencing old table as gone for each statement execute function navin.note_gone();
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
