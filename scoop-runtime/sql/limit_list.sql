-- The limits of sagas.
-- Locks: nothing.
SELECT l.saga::text, l.handlers, l.concurrency FROM scoop.run_limit l ORDER BY l.saga
