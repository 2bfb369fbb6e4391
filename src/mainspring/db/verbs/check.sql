-- What a job, and who acts on it, must be like. What is wrong raises MS001 and names the field.

-- Refuse what is wrong with a field; its value is not repeated.
create or replace function {schema}.refuse(p_field text, p_problem text, p_code text default 'VALIDATION_ERROR') returns void
language plpgsql immutable as $$
begin
  raise exception '%: %', p_field, p_problem using errcode = 'MS001', detail = p_field, hint = p_code;
end $$;

-- A name, an id, a key, a reason: as mainspring.text.texts says it.
create or replace function {schema}.check_text(p_field text, p_value text, p_limit integer) returns void
language plpgsql immutable as $$
begin
  if p_value is null then
    perform {schema}.refuse(p_field, 'is missing');
  elsif p_value ~ '^[\s\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$' then
    perform {schema}.refuse(p_field, 'is empty');
  elsif length(p_value) > p_limit then
    perform {schema}.refuse(p_field, format('is longer than %s characters', p_limit));
  elsif p_value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]' then
    perform {schema}.refuse(p_field, 'has a control character');
  end if;
end $$;

-- A payload holds references to secrets, never the secrets: as mainspring.text.document says it. The fields of p_allowed may.
create or replace function {schema}.check_secrets(p_value jsonb, p_path text, p_allowed text[]) returns void
language plpgsql immutable as $$
declare
  name text;
  item jsonb;
  field text;
begin
  if jsonb_typeof(p_value) = 'object' then
    for name, item in select * from jsonb_each(p_value) loop
      field := p_path || '.' || case when length(name) > 40 then left(name, 40) || '…' else name end;
      field := regexp_replace(field, '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]', '�', 'g');
      continue when name = any(p_allowed);
      if name ~* '(password|passwd|passphrase|pwd|secret|token|credentials?|(api|access|private|secret|signing|encryption|master)[_-]?key)$' then
        perform {schema}.refuse(field, 'looks like a secret: pass a reference to it instead');
      end if;
      perform {schema}.check_secrets(item, field, p_allowed);
    end loop;
  elsif jsonb_typeof(p_value) = 'array' then
    for item, name in select e, n - 1 from jsonb_array_elements(p_value) with ordinality x(e, n) loop
      perform {schema}.check_secrets(item, format('%s[%s]', p_path, name), p_allowed);
    end loop;
  elsif jsonb_typeof(p_value) = 'string' and p_value #>> '{}' ~
      '(?<![A-Za-z0-9])([sr]k_(live|test)_|whsec_)[A-Za-z0-9+/=_-]{8,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\mAKIA[0-9A-Z]{16}\M|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----' then
    perform {schema}.refuse(p_path, 'looks like a secret: pass a reference to it instead');
  end if;
end $$;

create or replace function {schema}.check_payload(p_payload jsonb, p_allowed text[]) returns void language plpgsql immutable as $$
begin
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    perform {schema}.refuse('payload', 'is not a JSON object');
  elsif octet_length(p_payload::text) > 262144 then
    perform {schema}.refuse('payload', 'is larger than 256 KiB', 'PAYLOAD_TOO_LARGE');
  elsif jsonb_path_exists(p_payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    perform {schema}.refuse('payload', 'is nested deeper than 64 levels');
  elsif octet_length(p_payload::text) > 4300 and exists (
      select from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "number")') n where length(n::text) > 4300) then
    perform {schema}.refuse('payload', 'holds a number that is too large');
  end if;
  if p_payload::text ~* 'secret|token|passw|passphrase|pwd|credential|key"|_live_|_test_|whsec_|eyj|private key|akia' then
    perform {schema}.check_secrets(p_payload, 'payload', coalesce(p_allowed, '{}'));
  end if;
end $$;

create or replace function {schema}.check_instant(p_field text, p_text text) returns void language plpgsql stable as $$
declare
  at timestamptz;
begin
  if p_text ~ '(Z|[+-]\d\d(:?\d\d)?)$' then
    begin
      at := p_text::timestamptz;
    exception when data_exception then
      null;
    end;
  end if;
  if at is null or not isfinite(at) then
    perform {schema}.refuse(p_field, 'is not a time with a time zone');
  elsif at >= '2201-01-01Z' then
    perform {schema}.refuse(p_field, 'lies after the year 2200');
  elsif at < '0001-01-03Z' then
    perform {schema}.refuse(p_field, 'lies before the year 1');
  end if;
end $$;

create or replace function {schema}.check_span(p_field text, p_text text) returns void language plpgsql stable as $$
declare
  span interval;
begin
  begin
    span := p_text::interval;
  exception when data_exception then
    null;
  end;
  if span is null or span not between interval '0' and interval '3653 days' then
    perform {schema}.refuse(p_field, 'is not a time span from 0 to 10 years');
  end if;
end $$;

-- The wire format of mainspring.job.NewJob as somebody else than the client wrote it: each field by its name and kind.
create or replace function {schema}.check_job(p_job json) returns void language plpgsql stable as $$
declare
  field text;
  item json;
  value text;
  kind text;
  allowed text[];
begin
  if json_typeof(p_job) is distinct from 'object' then
    perform {schema}.refuse('jobs', 'is not an array of objects');
  end if;
  begin
    perform from json_each_text(p_job);
  exception when data_exception then
    -- NUL or half a surrogate pair, escaped: name the field that it stands in. Only the end of what stands before it is
    -- looked at: to match all of it costs the square of its length.
    value := left(p_job::text, greatest(regexp_instr(p_job::text, '\\u(?:0000|[dD][89a-fA-F])') - 1, 0));
    field := substring(right(value, 800) from '"(\w{1,40})"\s*:\s*"[^"]*$');
    field := case when field in ('task', 'queue', 'org_id', 'actor_type', 'actor_id', 'request_id', 'correlation_id', 'key',
                          'strand') then field else 'payload' end;
    perform {schema}.refuse(field, 'has a character that cannot be stored');
  end;
  if json_typeof(p_job -> 'allow_secrets') = 'array' then
    allowed := array(select json_array_elements_text(p_job -> 'allow_secrets'));
  end if;
  foreach field in array array['id', 'task', 'payload'] loop
    if p_job -> field is null then
      perform {schema}.refuse(field, 'is missing');
    end if;
  end loop;
  for field, item in select * from json_each(p_job) loop
    kind := json_typeof(item);
    value := item #>> '{}';
    if (select count(*) from json_object_keys(p_job) k where k = field) > 1 then
      perform {schema}.refuse(left(field, 40), 'appears twice');
    end if;
    continue when kind = 'null' and field not in ('id', 'task', 'payload', 'queue', 'priority', 'max_attempts',
                                                  'cancellable', 'org_id', 'actor_type', 'actor_id', 'reset', 'unless_live');
    case field
      when 'task', 'queue', 'org_id', 'actor_id', 'request_id', 'correlation_id', 'key', 'strand' then
        if kind not in ('string', 'null') then
          perform {schema}.refuse(field, 'is not a text');
        end if;
        perform {schema}.check_text(field, value, case field when 'queue' then 63 when 'key' then 512 else 200 end);
      when 'id', 'project_id', 'parent_id' then
        if value is null or value !~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then
          perform {schema}.refuse(field, 'is not a UUID');
        end if;
      when 'priority' then
        if kind <> 'number' or value !~ '^[0-3]$' then
          perform {schema}.refuse(field, 'is not a whole number from 0 to 3');
        end if;
      when 'max_attempts' then
        if kind <> 'number' or value !~ '^([1-9]\d{0,2}|1000)$' then
          perform {schema}.refuse(field, 'is not a whole number from 1 to 1000');
        end if;
      when 'cancellable', 'reset', 'unless_live', 'project_scoped', 'schedulable', 'by_payload', 'best_effort' then
        if kind <> 'boolean' then
          perform {schema}.refuse(field, 'is not true or false');
        end if;
      when 'actor_type' then
        if value is null or value not in ('user', 'system', 'api_key') then
          perform {schema}.refuse(field, 'is not one of user, system, api_key');
        end if;
      when 'mode' then
        if value not in ('live', 'keep', 'window', 'reset_failed', 'replace', 'debounce') then
          perform {schema}.refuse(field, 'is not one of live, keep, window, reset_failed, replace, debounce');
        end if;
      when 'created_at', 'scheduled_for' then
        perform {schema}.check_instant(field, case kind when 'string' then value end);
      when 'delay', 'wait', 'ttl' then
        perform {schema}.check_span(field, case kind when 'string' then value end);
      when 'traceparent' then
        if value !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
          perform {schema}.refuse(field, 'is not a trace context');
        end if;
      when 'payload' then
        begin
          perform item::jsonb;
        exception when data_exception then
          perform {schema}.refuse(field, 'has a character or a number that cannot be stored');
        end;
        perform {schema}.check_payload(item::jsonb, allowed);
      when 'allow_secrets' then
        null;
      else
        perform {schema}.check_text('jobs', field, 63);
        perform {schema}.refuse(field, 'is not a field of a job');
    end case;
  end loop;
  if p_job ->> 'queue' = 'q:deadletter' then
    perform {schema}.refuse('queue', 'q:deadletter holds dead jobs; nothing is enqueued to it');
  elsif (p_job ->> 'actor_id' is null) <> (p_job ->> 'actor_type' is null) then
    perform {schema}.refuse(case when p_job ->> 'actor_id' is null then 'actor_id' else 'actor_type' end, 'is missing');
  elsif p_job ->> 'key' is null and (p_job ->> 'mode' is not null or 'true' in (p_job ->> 'reset', p_job ->> 'unless_live')) then
    perform {schema}.refuse('key', 'is missing: ' || coalesce(
      p_job ->> 'mode', case when p_job ->> 'reset' = 'true' then 'reset' else 'unless_live' end) || ' needs one');
  elsif p_job ->> 'mode' = 'debounce' and p_job ->> 'wait' is null then
    perform {schema}.refuse('wait', 'is missing');
  elsif p_job ->> 'delay' is not null and p_job ->> 'scheduled_for' is not null then
    perform {schema}.refuse('delay', 'is given together with scheduled_for');
  end if;
end $$;

create or replace function {schema}.check_jobs(p_jobs json) returns void language plpgsql stable as $$
begin
  if json_typeof(p_jobs) is distinct from 'array' then
    perform {schema}.refuse('jobs', 'is not an array of objects');
  end if;
  perform {schema}.check_job(j) from json_array_elements(p_jobs) j;
end $$;

-- Whoever changes something is named; why is said where it is asked for, and where it is said it can be read.
create or replace function {schema}.check_actor(p_actor_type text, p_actor_id text, p_reason text) returns void
language plpgsql immutable as $$
begin
  if p_actor_type is null or p_actor_type not in ('user', 'system', 'api_key') then
    raise exception 'actor_type: must be user, system or api_key' using errcode = 'MS001', detail = 'actor_type';
  end if;
  perform {schema}.check_text('actor_id', p_actor_id, 200);
  perform {schema}.check_text('reason', coalesce(p_reason, '-'), 1000);
end $$;
