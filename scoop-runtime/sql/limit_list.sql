-- The limits of sagas.
-- Locks: nothing.
SELECT l.saga::text, l.handlers, l.concurrency, l.concurrency_by_key, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM scoop.run_limit l ORDER BY l.saga
