-- Makes runs that await a signal from the one in the tables, as many as the setting bench.copies says, each with a key of
-- its own. All columns of the working set are copied.

SELECT set_config('session_replication_role', 'replica', false) FROM pg_roles WHERE rolname = current_user AND rolsuper;

CREATE TEMP TABLE copy AS
SELECT n, scoop.gen_uuid_v7() AS message, scoop.gen_uuid_v7() AS root, scoop.gen_uuid_v7() AS id
FROM generate_series(1, current_setting('bench.copies')::int) n;
CREATE TEMP TABLE real_run AS SELECT * FROM scoop.run WHERE topic = 'bench.request';
CREATE TEMP TABLE real_message AS SELECT * FROM scoop.message WHERE topic = 'bench.request';
CREATE TEMP TABLE real_event AS SELECT * FROM scoop.message_event WHERE message_id IN (SELECT id FROM real_message);

INSERT INTO scoop.message (id, topic, payload, created_at)
SELECT c.message, m.topic, m.payload, m.created_at FROM copy c CROSS JOIN real_message m;

INSERT INTO scoop.message_event
    (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, context, next_step,
     definition, wait)
SELECT c.message, e.type, e.coroutine_name, e.coroutine_identifier, e.step,
       CASE WHEN cardinality(e.cooperation_lineage) = 1 THEN ARRAY[c.root] ELSE ARRAY[c.root, c.id] END,
       e.created_at, e.context, e.next_step, e.definition, e.wait
FROM copy c CROSS JOIN real_event e;

INSERT INTO scoop.run
SELECT made.* FROM copy c CROSS JOIN real_run r
CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object(
    'root', c.root, 'id', c.id, 'lineage', ARRAY[c.root, c.id], 'message_id', c.message,
    'awaited', jsonb_build_object('signal', (r.awaited).signal, 'key', 'copy ' || c.n))) made;
