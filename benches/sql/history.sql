-- Makes finished runs from the rows that the one real saga in the tables left, as many as the setting bench.copies says. One run
-- ended every 2.5 seconds, the newest just now; unless the settings bench.spacing and bench.age have other times. Of the events
-- only the first and the last are made if bench.events is 'ends'. Their ids are of version 7 and of that time, like real ones.

-- A superuser can skip the check of each foreign key.
SELECT set_config('session_replication_role', 'replica', false) FROM pg_roles WHERE rolname = current_user AND rolsuper;

CREATE FUNCTION pg_temp.copied(id uuid, copy int, at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3), 'hex')
        || '7' || substr(md5(id::text || copy), 1, 3) || '8' || substr(md5(id::text || copy), 4, 15))::uuid
$$;

-- Indexes are created afterwards, except those of constraints.
CREATE TEMP TABLE dropped AS
SELECT i.indexname, i.indexdef FROM pg_indexes i
WHERE i.schemaname = 'scoop' AND i.tablename IN ('message', 'message_event', 'ended_run')
  AND NOT EXISTS (SELECT FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
                  WHERE n.nspname = 'scoop' AND c.conname = i.indexname);
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT indexname FROM dropped LOOP EXECUTE format('DROP INDEX scoop.%I', name); END LOOP;
END $$;

CREATE TEMP TABLE copy AS
SELECT n, clock_timestamp() - coalesce(current_setting('bench.age', true), '0')::interval
       - n * coalesce(current_setting('bench.spacing', true), '2.5 seconds')::interval AS at
FROM generate_series(current_setting('bench.copies')::int, 1, -1) n;
CREATE TEMP TABLE real_message AS SELECT * FROM scoop.message;
CREATE TEMP TABLE real_end AS SELECT * FROM scoop.ended_run;
CREATE TEMP TABLE real_event AS SELECT *, created_at - min(created_at) OVER () AS since FROM scoop.message_event;

INSERT INTO scoop.message (id, topic, payload, created_at)
SELECT pg_temp.copied(m.id, c.n, c.at), m.topic, m.payload, c.at
FROM copy c CROSS JOIN real_message m;

INSERT INTO scoop.message_event
    (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at,
     exception, context, next_step, child_failure_handler_iteration)
SELECT pg_temp.copied(e.id, c.n, c.at), pg_temp.copied(e.message_id, c.n, c.at), e.type, e.coroutine_name,
       e.coroutine_identifier, e.step,
       ARRAY(SELECT pg_temp.copied(l.id, c.n, c.at) FROM unnest(e.cooperation_lineage) WITH ORDINALITY l (id, nth)
             ORDER BY l.nth),
       c.at + e.since, e.exception, e.context, e.next_step, e.child_failure_handler_iteration
FROM copy c CROSS JOIN real_event e
WHERE coalesce(current_setting('bench.events', true), 'all') = 'all'
   OR e.type::text IN ('SEEN', 'COMMITTED', 'ROLLED_BACK');

INSERT INTO scoop.ended_run
    (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context, ended_at)
SELECT pg_temp.copied(r.root, c.n, c.at), pg_temp.copied(r.id, c.n, c.at), pg_temp.copied(r.parent, c.n, c.at),
       ARRAY(SELECT pg_temp.copied(l.id, c.n, c.at) FROM unnest(r.lineage) WITH ORDINALITY l (id, nth) ORDER BY l.nth),
       pg_temp.copied(r.message_id, c.n, c.at), r.topic, r.handler, r.outcome, r.failure, r.rollback_failure, r.context,
       c.at + (r.ended_at - (SELECT min(e.created_at) FROM real_event e))
FROM copy c CROSS JOIN real_end r;

INSERT INTO public.entry (saga, step) SELECT c.n, step FROM copy c CROSS JOIN generate_series(1, 3) step;

DO $$
DECLARE definition text;
BEGIN
    FOR definition IN SELECT indexdef FROM dropped LOOP EXECUTE definition; END LOOP;
END $$;
