-- A thousand messages at once.
\set first :client_id * 1000000 + :nth * 1000
\set nth :nth + 1
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT key(0, n), 'bench.insert', '{"n": 0}' FROM generate_series(:first::bigint + 1, :first::bigint + 1000) n
),
delivered AS (
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
    SELECT key(15, n), key(8, n), ARRAY[key(15, n), key(8, n)], key(0, n), 'bench.insert', 'inserts', clock_timestamp()
    FROM generate_series(:first::bigint + 1, :first::bigint + 1000) n
)
INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage)
SELECT event(0, n), key(0, n), 'EMITTED', ARRAY[key(15, n)] FROM generate_series(:first::bigint + 1, :first::bigint + 1000) n;
