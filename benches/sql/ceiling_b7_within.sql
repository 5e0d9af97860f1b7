-- One message in a transaction of the caller, which also inserts a row.
\set n :client_id * 1000000 + :nth
\set nth :nth + 1
BEGIN;
INSERT INTO entry (saga, step) VALUES (1, 0);
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload) VALUES (key(0, :n), 'bench.insert', '{"n": 0}')
),
delivered AS (
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
    VALUES (key(15, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n)], key(0, :n), 'bench.insert', 'inserts', clock_timestamp())
)
INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage) VALUES (event(0, :n), key(0, :n), 'EMITTED', ARRAY[key(15, :n)]);
COMMIT;
