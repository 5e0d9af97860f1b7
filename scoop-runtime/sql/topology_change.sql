-- Marks the topology as changed, since a worker started, ended or changed its definitions, a pause begins or ends, or a limit
-- changes: a claim by outdated knowledge takes nothing. It follows topology_lock.sql in its transaction.
-- Locks: all rows of worker; not against claims, but against refusals of runs (worker_lock_shared.sql).
UPDATE scoop.worker
-- by the clock, so that a worker that was presumed dead and comes back never has an old value; of the greatest value
-- there is no greater one
SET topology = CASE WHEN topology < 9223372036854775807
        THEN greatest(topology + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END
