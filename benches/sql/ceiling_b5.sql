-- A tree that fails in its last step: seven transactions forward, one that is rolled back, and seven
-- compensations.
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
-- the last step fails
INSERT INTO entry (saga, step) VALUES (:n, 2);
ROLLBACK;
BEGIN;
-- the leaves compensate, as requested by their parents after the request of the root: the first leaf writes the
-- requests
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run r USING (VALUES (key(9, :n)), (key(10, :n)), (key(11, :n))) n (id)
    WHERE r.root = key(15, :n) AND r.id = n.id
    RETURNING r.*
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', clock_timestamp() FROM gone
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, rolling_back, rollback_requested, failure, last_event_at)
    VALUES (key(15, :n), key(13, :n), key(11, :n), ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], key(5, :n), 'bench.middle.leaf', 'leaf_middle', 'running', owner(), 1, true, true, '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, clock_timestamp()),
           (key(15, :n), key(14, :n), key(11, :n), ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], key(6, :n), 'bench.right.leaf', 'leaf_right', 'running', owner(), 1, true, true, '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, clock_timestamp())
),
kept AS (
    UPDATE scoop.run SET state = 'waiting', owner = NULL, epoch = epoch + 1, step = 'Rollback of place (rolling back child scopes)', rolling_back = true, failure = '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, last_event_at = clock_timestamp()
    WHERE root = key(15, :n) AND id = key(8, :n)
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(24, :n), key(1, :n), 'COMMITTED', 'left', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(25, :n), key(2, :n), 'COMMITTED', 'middle', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(26, :n), key(3, :n), 'COMMITTED', 'right', worker(), 'act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(27, :n), key(0, :n), 'ROLLING_BACK', 'tree', worker(), 'confirm', ARRAY[key(15, :n), key(8, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(28, :n), key(0, :n), 'SUSPENDED', 'tree', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(29, :n), key(1, :n), 'ROLLBACK_EMITTED', 'tree', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(30, :n), key(2, :n), 'ROLLBACK_EMITTED', 'tree', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(31, :n), key(3, :n), 'ROLLBACK_EMITTED', 'tree', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(32, :n), key(4, :n), 'ROLLING_BACK', 'leaf_left', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(33, :n), key(4, :n), 'SUSPENDED', 'leaf_left', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], NULL),
       (event(34, :n), key(4, :n), 'ROLLED_BACK', 'leaf_left', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(9, :n), key(12, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, rolling_back, rollback_requested, failure, last_event_at)
    VALUES (key(15, :n), key(9, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(9, :n)], key(1, :n), 'bench.left', 'left', 'running', owner(), 1, true, true, '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, clock_timestamp()),
           (key(15, :n), key(10, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(10, :n)], key(2, :n), 'bench.middle', 'middle', 'running', owner(), 1, true, true, '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, clock_timestamp()),
           (key(15, :n), key(11, :n), key(8, :n), ARRAY[key(15, :n), key(8, :n), key(11, :n)], key(3, :n), 'bench.right', 'right', 'running', owner(), 1, true, true, '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb, clock_timestamp())
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(35, :n), key(1, :n), 'ROLLING_BACK', 'left', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(9, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(36, :n), key(1, :n), 'SUSPENDED', 'left', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(37, :n), key(4, :n), 'ROLLBACK_EMITTED', 'left', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(9, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(38, :n), key(2, :n), 'ROLLING_BACK', 'middle', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(10, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(39, :n), key(2, :n), 'SUSPENDED', 'middle', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(40, :n), key(5, :n), 'ROLLBACK_EMITTED', 'middle', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(10, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(41, :n), key(3, :n), 'ROLLING_BACK', 'right', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(11, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(42, :n), key(3, :n), 'SUSPENDED', 'right', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(43, :n), key(6, :n), 'ROLLBACK_EMITTED', 'right', worker(), 'Rollback of place (rolling back child scopes)', ARRAY[key(15, :n), key(8, :n), key(11, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(44, :n), key(5, :n), 'ROLLING_BACK', 'leaf_middle', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(45, :n), key(5, :n), 'SUSPENDED', 'leaf_middle', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], NULL),
       (event(46, :n), key(5, :n), 'ROLLED_BACK', 'leaf_middle', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(10, :n), key(13, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run r USING (VALUES (key(13, :n)), (key(14, :n))) n (id)
    WHERE r.root = key(15, :n) AND r.id = n.id
    RETURNING r.*
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'rolled_back', clock_timestamp() FROM gone
    ON CONFLICT (root, id) DO UPDATE SET outcome = 'rolled_back', ended_at = excluded.ended_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(47, :n), key(6, :n), 'ROLLING_BACK', 'leaf_right', worker(), NULL, ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], '{"message": "the last step fails, as it should", "type": "Felled", "source": "tree[scoop-rs:01980000-0000-7000-8000-000000000001]", "causes": [], "stackTrace": []}'::jsonb),
       (event(48, :n), key(6, :n), 'SUSPENDED', 'leaf_right', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], NULL),
       (event(49, :n), key(6, :n), 'ROLLED_BACK', 'leaf_right', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(11, :n), key(14, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(9, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'rolled_back', clock_timestamp() FROM gone
    ON CONFLICT (root, id) DO UPDATE SET outcome = 'rolled_back', ended_at = excluded.ended_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(50, :n), key(1, :n), 'SUSPENDED', 'left', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL),
       (event(51, :n), key(1, :n), 'ROLLED_BACK', 'left', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(9, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(10, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'rolled_back', clock_timestamp() FROM gone
    ON CONFLICT (root, id) DO UPDATE SET outcome = 'rolled_back', ended_at = excluded.ended_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(52, :n), key(2, :n), 'SUSPENDED', 'middle', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL),
       (event(53, :n), key(2, :n), 'ROLLED_BACK', 'middle', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(10, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(11, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'rolled_back', clock_timestamp() FROM gone
    ON CONFLICT (root, id) DO UPDATE SET outcome = 'rolled_back', ended_at = excluded.ended_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(54, :n), key(3, :n), 'SUSPENDED', 'right', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL),
       (event(55, :n), key(3, :n), 'ROLLED_BACK', 'right', worker(), 'Rollback of act', ARRAY[key(15, :n), key(8, :n), key(11, :n)], NULL);
\startpipeline
COMMIT;
BEGIN;
\endpipeline
INSERT INTO entry (saga, step) VALUES (:n, -1);
WITH gone AS (
    DELETE FROM scoop.run WHERE root = key(15, :n) AND id = key(8, :n)
    RETURNING *
),
ended AS (
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'rolled_back', clock_timestamp() FROM gone
    ON CONFLICT (root, id) DO UPDATE SET outcome = 'rolled_back', ended_at = excluded.ended_at
)
INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, exception)
VALUES (event(56, :n), key(0, :n), 'SUSPENDED', 'tree', worker(), 'Rollback of place', ARRAY[key(15, :n), key(8, :n)], NULL),
       (event(57, :n), key(0, :n), 'ROLLED_BACK', 'tree', worker(), 'Rollback of place', ARRAY[key(15, :n), key(8, :n)], NULL);
COMMIT;
