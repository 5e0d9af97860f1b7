-- As b_sep, but the claim returns a payload and a context of 4 kB each, and the record holds that context.
BEGIN;
SELECT w.id AS run, m.payload AS payload, w.context AS context FROM work_4k w JOIN message_4k m ON m.id = w.message
WHERE w.is_ready ORDER BY w.ready_at LIMIT 1 FOR UPDATE OF w SKIP LOCKED \gset
INSERT INTO entry (saga, step) VALUES (:run, 1);
INSERT INTO history (id, message, fact, handler, worker, step, ancestors, context)
VALUES (gen_random_uuid(), gen_random_uuid(), 'done', 'handler', 'worker-1', 'step-1', ARRAY[gen_random_uuid(), gen_random_uuid()], :context);
UPDATE work_4k SET step = step + 1, ready_at = clock_timestamp() WHERE id = :run;
COMMIT;
