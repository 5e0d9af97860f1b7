-- One saga step as six round trips: claim a run, do the user's write, record it, put the run back, commit.
BEGIN;
SELECT id AS run FROM work WHERE is_ready ORDER BY ready_at LIMIT 1 FOR UPDATE SKIP LOCKED \gset
INSERT INTO entry (saga, step) VALUES (:run, 1);
INSERT INTO history (id, message, fact, handler, worker, step, ancestors)
VALUES (gen_random_uuid(), gen_random_uuid(), 'done', 'handler', 'worker-1', 'step-1', ARRAY[gen_random_uuid(), gen_random_uuid()]);
UPDATE work SET step = step + 1, ready_at = clock_timestamp() WHERE id = :run;
COMMIT;
