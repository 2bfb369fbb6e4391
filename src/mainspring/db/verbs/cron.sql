-- Cron expressions, checked as the client checks them.

-- The numbers that one field of a cron expression means; null: it is none.
create or replace function {schema}.cron_values(p_field text, p_low integer, p_high integer, p_names text[]) returns integer[]
language plpgsql immutable as $$
declare
  item text;
  part text[];
  first integer;
  last integer;
  found integer[] := '{}';
begin
  foreach item in array string_to_array(p_field, ',') loop
    part := regexp_match(item, '^(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,4}))?$');
    if part is null or part[4]::integer = 0 then
      return null;
    end if;
    first := case when part[1] is not null then p_low when part[2] ~ '^[0-9]' then part[2]::integer
                  else p_low - 1 + array_position(p_names, part[2]) end;
    last := case when part[1] is not null then p_high when part[3] is null and part[4] is not null then p_high
                 when part[3] is null then first when part[3] ~ '^[0-9]' then part[3]::integer
                 else p_low - 1 + array_position(p_names, part[3]) end;
    if first is null or last is null or first < p_low or last > p_high or first > last then
      return null;
    end if;
    found := found || array(select generate_series(first, last, coalesce(part[4]::integer, 1)));
  end loop;
  return nullif(found, '{}');
end $$;

-- A cron expression of five fields that fires some day, as mainspring.when.rule takes it: with names, L, 5L and WED#2.
create or replace function {schema}.check_cron(p_text text) returns void language plpgsql immutable as $$
declare
  fields text[];
  days text;
  weekdays text;
  months integer[];
  numbers integer[];
begin
  if p_text is null then
    perform {schema}.refuse('cron', 'is missing');
  elsif length(p_text) > 200 then
    perform {schema}.refuse('cron', 'is longer than 200 characters');
  end if;
  fields := regexp_split_to_array(btrim(upper(p_text), e' \t'), '[ \t]+');
  if cardinality(fields) <> 5 then
    perform {schema}.refuse('cron', 'has not five fields: minute, hour, day of month, month, day of week');
  end if;
  days := array_to_string(array(select x from unnest(string_to_array(fields[3], ',')) x where x <> 'L'), ',');
  weekdays := array_to_string(array(
    select x from unnest(string_to_array(fields[5], ',')) x
    where x !~ '^([0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5])$'), ',');
  if {schema}.cron_values(fields[1], 0, 59, '{}') is null then
    perform {schema}.refuse('cron', 'has a wrong minute');
  elsif {schema}.cron_values(fields[2], 0, 23, '{}') is null then
    perform {schema}.refuse('cron', 'has a wrong hour');
  end if;
  numbers := {schema}.cron_values(days, 1, 31, '{}');
  if numbers is null and (days <> '' or fields[3] ~ ',,|^,|,$') then
    perform {schema}.refuse('cron', 'has a wrong day of month');
  end if;
  months := {schema}.cron_values(fields[4], 1, 12, '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}');
  if months is null then
    perform {schema}.refuse('cron', 'has a wrong month');
  elsif {schema}.cron_values(weekdays, 0, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}') is null
        and (weekdays <> '' or fields[5] ~ ',,|^,|,$') then
    perform {schema}.refuse('cron', 'has a wrong day of week');
  end if;
  if days = fields[3] and (fields[3] like '*%' or fields[5] like '*%')
     and (select min(d) from unnest(numbers) d)
       > (select max(case when m = 2 then 29 when m in (4, 6, 9, 11) then 30 else 31 end) from unnest(months) m) then
    perform {schema}.refuse('cron', 'never fires: no such month has such a day');
  end if;
end $$;
