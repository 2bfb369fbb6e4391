-- name: look
-- What a database looks like besides its rows: two are equal only if each line of this is. Compared, not read.
-- Catalogues are told by place and age of each row: DDL, grants and comments write a row anew, and a copy of a database
-- has its rows where the template has them. Schemas of temporary tables outlive their session, and mean nothing.
with catalogue as (
            select 'pg_attrdef' as name, ctid, xmin from pg_attrdef
  union all select 'pg_attribute', ctid, xmin from pg_attribute
  union all select 'pg_class', ctid, xmin from pg_class where relpersistence <> 't'
  union all select 'pg_collation', ctid, xmin from pg_collation
  union all select 'pg_constraint', ctid, xmin from pg_constraint
  union all select 'pg_default_acl', ctid, xmin from pg_default_acl
  union all select 'pg_depend', ctid, xmin from pg_depend
  union all select 'pg_description', ctid, xmin from pg_description where objoid >= 16384
  union all select 'pg_enum', ctid, xmin from pg_enum
  union all select 'pg_event_trigger', ctid, xmin from pg_event_trigger
  union all select 'pg_extension', ctid, xmin from pg_extension
  union all select 'pg_foreign_server', ctid, xmin from pg_foreign_server
  union all select 'pg_index', ctid, xmin from pg_index
  union all select 'pg_inherits', ctid, xmin from pg_inherits
  union all select 'pg_language', ctid, xmin from pg_language
  union all select 'pg_largeobject_metadata', ctid, xmin from pg_largeobject_metadata
  union all select 'pg_namespace', ctid, xmin from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
  union all select 'pg_policy', ctid, xmin from pg_policy
  union all select 'pg_proc', ctid, xmin from pg_proc
  union all select 'pg_publication', ctid, xmin from pg_publication
  union all select 'pg_rewrite', ctid, xmin from pg_rewrite
  union all select 'pg_sequence', ctid, xmin from pg_sequence
  union all select 'pg_statistic', ctid, xmin from pg_statistic
  union all select 'pg_statistic_ext', ctid, xmin from pg_statistic_ext
  union all select 'pg_trigger', ctid, xmin from pg_trigger
  union all select 'pg_type', ctid, xmin from pg_type
  union all select 'pg_user_mapping', ctid, xmin from pg_user_mapping
)
select name, count(*) || ' ' || sum(hashtid(ctid)::bigint * hashint8(xmin::text::bigint)) from catalogue group by name

-- name: ask
-- Which database the following is to make blank, and since when PostgreSQL has counted for us what is written there.
select set_config('mainspring.oid', {oid}, false), set_config('mainspring.counted', {counted}, false)

-- name: restore
-- Make a used database blank, in a session whose triggers and foreign keys are off.
-- PostgreSQL counts what is written, and a session that is gone has told all: if nobody but us made it count anew, rows
-- are only where it has counted some, and catalogues need a look only if one was written to. Without such a count every
-- table is cleared, and every catalogue looked at.
-- A relation must not have grown so far that plans change: the planner takes a table that was never vacuumed for ten
-- pages, and a B-tree of two pages has the least height. Its numbers are written in place, so they are looked at here.
do $restore$
declare
  own constant oid := (select oid from pg_database where datname = current_database());
  counted constant boolean := pg_stat_get_db_stat_reset_time(own)::text is not distinct from current_setting('mainspring.counted');
  written oid[];
  catalogues text;
  place regclass;
begin
  if own <> current_setting('mainspring.oid')::oid then
    raise exception 'another database';
  end if;
  if exists (select from pg_db_role_setting where setdatabase = own)
     or (select (datdba, datacl, datallowconn, datconnlimit, datistemplate)::text from pg_database where oid = own)
        <> {database} then
    raise exception 'settings';
  end if;
  if exists (select from pg_prepared_xact() where dbid = own)
     or exists (select from pg_get_replication_slots() where datoid = own)
     or exists (select from pg_subscription where subdbid = own) then
    raise exception 'prepared transactions, slots or subscriptions';
  end if;
  if exists (select from pg_class where oid >= 16384 having (sum(relpages), sum(reltuples))::text <> {planner}) then
    raise exception 'planner';
  end if;

  select array_agg(oid) filter (where oid >= 16384), string_agg(relname, ', ') filter (where oid < 16384)
  into written, catalogues
  from pg_class
  where relkind = 'r' and relpersistence <> 't' and not relisshared
    and (not counted or pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
                        + pg_stat_get_tuples_deleted(oid) > 0);
  if exists (
    select from pg_class c
    where c.oid = any (written || array(select indexrelid from pg_index where indrelid = any (written)))
      and c.oid <> all ({large})
      and (pg_stat_file(pg_relation_filepath(c.oid), true)).size
          > case c.relam when 403 then 2 else 10 end * current_setting('block_size')::int
  ) then
    raise exception 'size';
  end if;

  foreach place in array coalesce(written, array[]::oid[]) loop
    if place <> all ({seeded}) then
      execute format('delete from only %s', place);
    end if;
  end loop;
  {seeds}
  perform setval(s.seqrelid, coalesce(called.value, s.seqstart), called.value is not null)
  from pg_sequence s left join unnest({sequences}, {values}) as called(seqrelid, value) using (seqrelid);
  perform pg_stat_reset();
  perform set_config('mainspring.catalogues', coalesce(catalogues, ''), false);
end
$restore$;
select pg_stat_get_db_stat_reset_time(oid)::text, current_setting('mainspring.catalogues') <> ''
from pg_database where datname = current_database()
