-- A tree of seven runs: a transaction for each of its eight steps. Writes without a step go with the last one.
\set n :client_id * 1000000 + :nth
\set nth :nth + 1
BEGIN;
-- the root: claimed, its first step, and three children that have begun
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload)
    VALUES (key(1, :n), 'bench.left', '{"n": 1}'),
           (key(2, :n), 'bench.middle', '{"n": 1}'),
           (key(3, :n), 'bench.right', '{"n": 1}')
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
    VALUES (key(15, :n), key(9, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(9, :n)], key(1, :n), 'bench.left', 'left', 'running', owner(), 1, clock_timestamp()),
           (key(15, :n), key(10, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(10, :n)], key(2, :n), 'bench.middle', 'middle', 'running', owner(), 1, clock_timestamp()),
           (key(15, :n), key(11, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(11, :n)], key(3, :n), 'bench.right', 'right', 'running', owner(), 1, clock_timestamp())
),
kept AS (
    UPDATE scoop.run SET state = 'waiting', owner = NULL, epoch = epoch + 1, step = 'place', suspensions = 1, last_event_at = clock_timestamp()
    WHERE root = key(15, :n) AND id = key(8, :n)
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(1, :n), key(0, :n), 'SEEN', 'tree', worker(), NULL, ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(2, :n), key(0, :n), 'SUSPENDED', 'tree', worker(), 'place', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(3, :n), key(1, :n), 'EMITTED', 'tree', worker(), 'place', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(4, :n), key(2, :n), 'EMITTED', 'tree', worker(), 'place', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(5, :n), key(3, :n), 'EMITTED', 'tree', worker(), 'place', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(6, :n), key(1, :n), 'SEEN', 'left', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(7, :n), key(2, :n), 'SEEN', 'middle', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(8, :n), key(3, :n), 'SEEN', 'right', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload)
    VALUES (key(4, :n), 'bench.left.leaf', '{"n": 1}')
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
    VALUES (key(15, :n), key(12, :n), key(9, :n), ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], key(4, :n), 'bench.left.leaf', 'leaf_left', 'running', owner(), 1, clock_timestamp())
),
kept AS (
    UPDATE scoop.run SET state = 'waiting', owner = NULL, epoch = epoch + 1, step = 'act', suspensions = 1, last_event_at = clock_timestamp()
    WHERE root = key(15, :n) AND id = key(9, :n)
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(9, :n), key(1, :n), 'SUSPENDED', 'left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(10, :n), key(4, :n), 'EMITTED', 'left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(11, :n), key(4, :n), 'SEEN', 'leaf_left', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload)
    VALUES (key(5, :n), 'bench.middle.leaf', '{"n": 1}')
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
    VALUES (key(15, :n), key(13, :n), key(10, :n), ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], key(5, :n), 'bench.middle.leaf', 'leaf_middle', 'running', owner(), 1, clock_timestamp())
),
kept AS (
    UPDATE scoop.run SET state = 'waiting', owner = NULL, epoch = epoch + 1, step = 'act', suspensions = 1, last_event_at = clock_timestamp()
    WHERE root = key(15, :n) AND id = key(10, :n)
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(12, :n), key(2, :n), 'SUSPENDED', 'middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(13, :n), key(5, :n), 'EMITTED', 'middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(14, :n), key(5, :n), 'SEEN', 'leaf_middle', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH published AS (
    INSERT INTO scoop.message (id, topic, payload)
    VALUES (key(6, :n), 'bench.right.leaf', '{"n": 1}')
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
    VALUES (key(15, :n), key(14, :n), key(11, :n), ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], key(6, :n), 'bench.right.leaf', 'leaf_right', 'running', owner(), 1, clock_timestamp())
),
kept AS (
    UPDATE scoop.run SET state = 'waiting', owner = NULL, epoch = epoch + 1, step = 'act', suspensions = 1, last_event_at = clock_timestamp()
    WHERE root = key(15, :n) AND id = key(11, :n)
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(15, :n), key(3, :n), 'SUSPENDED', 'right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(16, :n), key(6, :n), 'EMITTED', 'right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(17, :n), key(6, :n), 'SEEN', 'leaf_right', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(12, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(18, :n), key(4, :n), 'SUSPENDED', 'leaf_left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], NULL),
       (event(19, :n), key(4, :n), 'COMMITTED', 'leaf_left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(13, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(20, :n), key(5, :n), 'SUSPENDED', 'leaf_middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], NULL),
       (event(21, :n), key(5, :n), 'COMMITTED', 'leaf_middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, 1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(14, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(22, :n), key(6, :n), 'SUSPENDED', 'leaf_right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], NULL),
       (event(23, :n), key(6, :n), 'COMMITTED', 'leaf_right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
-- the three children have no child left to wait for, nor has the root
INSERT INTO entry (saga, step) VALUES (:n, 2);
WITH gone AS (
    DELETE FROM scoop.run r USING (VALUES (key(8, :n)), (key(9, :n)), (key(10, :n)), (key(11, :n))) n (id)
    WHERE r.root = key(15, :n) AND r.id = n.id
    RETURNING r.*
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(24, :n), key(1, :n), 'COMMITTED', 'left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(25, :n), key(2, :n), 'COMMITTED', 'middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(26, :n), key(3, :n), 'COMMITTED', 'right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(27, :n), key(0, :n), 'SUSPENDED', 'tree', worker(), 'confirm', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(28, :n), key(0, :n), 'COMMITTED', 'tree', worker(), 'confirm', ARRAY[key(15, :n), key(8, :n)], NULL);
COMMIT;
