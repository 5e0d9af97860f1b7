-- Begins a claim of runs of a saga with limits, and reads these. Later statements of its transaction see all runs that
-- other claims have taken. Nothing is returned if the worker does not know the topology, or there is no limit any more.
-- Locks: the row of this worker, as a claim does, then the row of run_limit: waits for other claims of this saga.
-- $1 worker, $2 the topology that it knows, $3 the saga
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $1 AND topology = $2 FOR KEY SHARE
)
SELECT l.saga::text, l.handlers, l.concurrency, l.concurrency_by_key, l.serial, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM scoop.run_limit l
WHERE l.saga = $3 AND EXISTS (SELECT FROM own_worker)
FOR UPDATE OF l
