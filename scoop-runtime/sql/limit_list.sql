-- The limits of sagas.
-- Locks: nothing.
SELECT l.saga::text, l.handlers, l.concurrency, l.key_from::text FROM scoop.run_limit l ORDER BY l.saga
