-- Enters a living process, whose session holds the advisory lock $2 already.
-- Locks: its row of worker.
-- $1 worker, $2 lock key, $3 the handlers it runs, $6 the topic of each and $4 its definition, $5 since when it runs; null: from now on
INSERT INTO scoop.worker (id, lock_key, topics, handlers, definitions, started_at, topology)
VALUES ($1, $2, $6, $3, $4, coalesce($5, clock_timestamp()), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (id) DO UPDATE SET lock_key = excluded.lock_key
RETURNING started_at
