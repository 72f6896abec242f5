-- Only where the server has pgvector; {vector} is the schema it is installed in.
-- One number of dimensions a tenant: distances between two models mean nothing.
-- Where it was installed by somebody else, its schema may be closed to the roles.
grant usage on schema {vector} to navin_app, navin_maintenance;
create table navin.spaces (
  tenant_id text collate "C" primary key,
  dims int not null
);
create table navin.vectors (
  tenant_id text collate "C" not null,
  partition text collate "C" not null,
  ns text collate "C" not null,
  key text collate "C" not null,
  field text collate "C" not null,
  embedding {vector}.vector not null,
  primary key (tenant_id, partition, ns, key, field)
);
alter table navin.spaces enable row level security;
alter table navin.spaces force row level security;
alter table navin.vectors enable row level security;
alter table navin.vectors force row level security;
create policy app on navin.spaces to navin_app using (tenant_id = current_setting('navin.tenant', true));
create policy app on navin.vectors to navin_app
  using (tenant_id = current_setting('navin.tenant', true)
    and partition = any (string_to_array(current_setting('navin.parts', true), E'\x1f')))
  with check (tenant_id = (select current_setting('navin.tenant', true))
    and partition = any ((select string_to_array(current_setting('navin.parts', true), E'\x1f'))::text[]));
create policy maintenance on navin.spaces for select to navin_maintenance using (true);
create policy maintenance on navin.vectors to navin_maintenance using (true);
grant select, insert on navin.spaces to navin_app;
grant select on navin.spaces to navin_maintenance;
grant select, insert, delete on navin.vectors to navin_app, navin_maintenance;

-- No vector outlives its text, whoever removes it. A row at a time: the rows that have none cost nothing.
create function navin.unvector() returns trigger language plpgsql as $$ begin
  delete from navin.vectors v where v.tenant_id = old.tenant_id and v.partition = old.partition and v.ns = old.ns and v.key = old.key;
  return null;
end $$;
create trigger unvector_changed after update of vid on navin.items for each row
  when (old.vid <> new.vid and old.vectors > 0) execute function navin.unvector();
create trigger unvector_gone after delete on navin.items for each row when (old.vectors > 0) execute function navin.unvector();

create function navin.space_of(p_tenant text) returns int language plpgsql as $$ begin
  perform navin.enter(p_tenant, '');
  return (select dims from navin.spaces where tenant_id = p_tenant);
end $$;

create function navin.write_vectors(p_tenant text, p_fields json, p_vectors real[]) returns void language plpgsql as $$
declare d int := cardinality(p_vectors) / json_array_length(p_fields); known int;
begin
  select dims into known from navin.spaces where tenant_id = p_tenant;
  if known is null then
    insert into navin.spaces (tenant_id, dims) values (p_tenant, d) on conflict do nothing;
    select dims into known from navin.spaces where tenant_id = p_tenant;
  end if;
  if known <> d then raise exception '% %', known, d using errcode = 'NV003'; end if;
  insert into navin.vectors (tenant_id, partition, ns, key, field, embedding)
    select p_tenant, f.value ->> 'p', f.value ->> 'n', f.value ->> 'k', f.value ->> 'f', p_vectors[(f.pos - 1) * d + 1 : f.pos * d]::{vector}.vector
    from json_array_elements(p_fields) with ordinality f (value, pos);
end $$;
grant execute on all functions in schema navin to navin_app, navin_maintenance;
revoke execute on all functions in schema navin from public;
