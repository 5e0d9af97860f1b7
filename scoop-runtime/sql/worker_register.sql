-- Enters a living process, whose session is this one and holds the advisory lock $2 already.
-- Locks: its row of worker.
-- $1 worker, $2 lock key, $3 the handlers it runs, $6 the topic of each and $4 its definition, $5 since when it runs;
-- null: from now on; $7 the service and $8 the build of its program, $9 the handlers that it keeps, null for all
INSERT INTO scoop.worker
    (id, lock_key, backend, backend_since, role, topics, handlers, definitions, started_at, topology, service, build, kept)
SELECT $1, $2, a.pid, a.backend_start, a.usesysid, $6, $3, $4, coalesce($5, clock_timestamp()),
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $7, $8, $9
FROM pg_stat_get_activity(pg_backend_pid()) a
ON CONFLICT (id) DO UPDATE
SET lock_key = excluded.lock_key, backend = excluded.backend, backend_since = excluded.backend_since,
    role = excluded.role
RETURNING started_at
