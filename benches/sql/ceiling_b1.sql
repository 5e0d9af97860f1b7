-- A saga of three steps, claimed with a hundred others: three round trips a step, the rows of the protocol, and one of ours.
\set n :client_id * 1000000 + :nth
\set nth :nth + 1
\if :nth % 100 = 2
WITH claimed AS (
    UPDATE scoop.run r SET state = 'running', owner = owner(), epoch = r.epoch + 1, last_event_at = clock_timestamp()
    FROM generate_series(:n::bigint, :n::bigint + 99) n
    WHERE r.root = key(15, n) AND r.id = key(8, n)
    RETURNING r.message_id, r.handler, r.lineage, r.last_event_at, n
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, created_at)
SELECT event(1, n), message_id, 'SEEN', handler, worker(), lineage, last_event_at FROM claimed;
\endif
BEGIN;
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH kept AS (
    UPDATE scoop.run r SET epoch = r.epoch + 1, step = 'first', suspensions = 1, last_event_at = clock_timestamp()
    WHERE r.root = key(15, :n) AND r.id = key(8, :n) AND r.epoch = 1 AND r.state = 'running'
    RETURNING r.message_id, r.handler, r.lineage, r.last_event_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at)
SELECT event(2, :n), message_id, 'SUSPENDED', handler, worker(), 'first', lineage, last_event_at FROM kept;
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 2);
WITH kept AS (
    UPDATE scoop.run r SET epoch = r.epoch + 1, step = 'second', suspensions = 2, last_event_at = clock_timestamp()
    WHERE r.root = key(15, :n) AND r.id = key(8, :n) AND r.epoch = 2 AND r.state = 'running'
    RETURNING r.message_id, r.handler, r.lineage, r.last_event_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at)
SELECT event(3, :n), message_id, 'SUSPENDED', handler, worker(), 'second', lineage, last_event_at FROM kept;
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 3);
WITH gone AS (
    DELETE FROM scoop.run r
    WHERE r.root = key(15, :n) AND r.id = key(8, :n) AND r.epoch = 3 AND r.state = 'running'
    RETURNING r.root, r.id, r.message_id, r.topic, r.handler, r.lineage
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage)
SELECT event(nth, :n), message_id, type, handler, worker(), 'third', lineage
FROM gone, (VALUES (4, 'SUSPENDED'::scoop.message_event_type), (5, 'COMMITTED')) e (nth, type);
COMMIT;
