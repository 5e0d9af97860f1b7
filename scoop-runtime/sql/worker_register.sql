-- Enters a living process, whose session holds the advisory lock $2 already.
-- Locks: its row of worker.
-- $1 worker, $2 lock key, $3 the handlers it runs
INSERT INTO scoop.worker (id, lock_key, handlers) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET lock_key = excluded.lock_key
