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
  primary key (tenant_id, partition)
);
create index partitions_scope on navin.partitions (tenant_id, scope, partition);

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
-- The conditions hold for every row. They keep these three indexes to the statements that name them: without statistics, in a
-- database that was just filled, any index that begins with the tenant looks as good as the primary key.
create unique index items_id on navin.items (tenant_id, id) where id > '00000000-0000-0000-0000-000000000000';
create unique index items_vid on navin.items (tenant_id, partition, vid) where vid > 0;
create index items_newest on navin.items (tenant_id, partition, updated_at desc, ns, key) where updated_at > '-infinity';
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
  salt bytea,                                  -- random, and gone with the content: the digest alone lets nobody try values
  old_value jsonb,
  valid_from timestamptz,                      -- of old_value; it was valid until "at"
  primary key (tenant_id, seq)
);
create index journal_item on navin.journal (tenant_id, item_id, version);

alter table navin.epochs enable row level security;
alter table navin.epochs force row level security;
alter table navin.partitions enable row level security;
alter table navin.partitions force row level security;
alter table navin.items enable row level security;
alter table navin.items force row level security;
alter table navin.journal enable row level security;
alter table navin.journal force row level security;

-- The (select …) form is evaluated once a statement; without it a batch over a hundred partitions would split the list again for
-- every row. A planner knows less of it, which does no harm: every statement names its partitions itself.
create policy app on navin.epochs for select to navin_app using (tenant_id = current_setting('navin.tenant', true));
create policy app on navin.partitions to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and (partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')) or current_setting('navin.span', true) = 'on'))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app on navin.items to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app_reads on navin.journal for select to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy app_adds on navin.journal for insert to navin_app
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and (partition is null or partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[])));
-- Append-only: the one change the application may make is to erase content.
create policy app_erases on navin.journal for update to navin_app
  using (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]))
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

-- Who acts, for this transaction only; p_who holds four parts joined by U+001F: actor, agent, policy version, trace. Settings of a session would reach the next caller behind a pooler.
create function navin.enter(p_tenant text, p_parts text, p_who text default '', p_role text default 'navin_app') returns void
language plpgsql as $$ begin
  perform set_config('navin.tenant', p_tenant, true), set_config('navin.parts', p_parts, true),
          set_config('navin.who', p_who, true), set_config('role', p_role, true);
end $$;

grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
