-- b_sep with its record in a table with the columns and indexes of our table of events.
BEGIN;
SELECT id AS run, message FROM work WHERE is_ready ORDER BY ready_at LIMIT 1 FOR UPDATE SKIP LOCKED \gset
INSERT INTO entry (saga, step) VALUES (:run, 1);
INSERT INTO history_protocol (id, message, fact, handler, worker, step, ancestors)
VALUES (gen_random_uuid(), :message, 'done', 'handler', 'worker-1', 'step-1', ARRAY[gen_random_uuid(), gen_random_uuid()]);
UPDATE work SET step = step + 1, ready_at = clock_timestamp() WHERE id = :run;
COMMIT;
