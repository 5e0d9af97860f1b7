-- A child, launched and begun with a hundred others by one statement. No parent waits for it.
\set n :client_id * 1000000 + :nth
\set nth :nth + 1
\if :nth % 100 = 2
\set first :n
BEGIN;
WITH launched AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT key(1, n), 'bench.child', '{"parent": 1, "n": 1}' FROM generate_series(:n::bigint, :n::bigint + 99) n
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
    SELECT key(15, :first), key(9, n), key(8, :first), ARRAY[key(15, :first), key(8, :first), key(9, n)], key(1, n),
           'bench.child', 'child', 'running', owner(), 1, clock_timestamp()
    FROM generate_series(:n::bigint, :n::bigint + 99) n
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage)
SELECT event(nth, n), key(1, n), type, handler, worker(), step, lineage
FROM generate_series(:n::bigint, :n::bigint + 99) n
CROSS JOIN LATERAL (
    VALUES (1, 'EMITTED'::scoop.message_event_type, 'fan', 'spread', ARRAY[key(15, :first), key(8, :first)]),
           (2, 'SEEN', 'child', NULL, ARRAY[key(15, :first), key(8, :first), key(9, n)])
) e (nth, type, handler, step, lineage);
COMMIT;
\endif
BEGIN;
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH gone AS (
    DELETE FROM scoop.run r
    WHERE r.root = key(15, :first) AND r.id = key(9, :n) AND r.epoch = 1 AND r.state = 'running'
    RETURNING r.*
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage)
SELECT event(nth, :n), message_id, type, handler, worker(), 'act', lineage
FROM gone, (VALUES (4, 'SUSPENDED'::scoop.message_event_type), (5, 'COMMITTED')) e (nth, type);
COMMIT;
