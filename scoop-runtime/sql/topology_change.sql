-- Marks the topology as changed, since a worker started, ended or changed its definitions, a pause begins or ends, or a limit
-- changes: a claim by outdated knowledge takes nothing.
-- Locks: all rows of worker, one after the other by their ids; not against claims, but against refusals of runs
-- (worker_share.sql).
WITH living AS (
    SELECT w.id FROM scoop.worker w ORDER BY w.id FOR NO KEY UPDATE
)
UPDATE scoop.worker w
-- by the clock, so that a worker that was presumed dead and comes back never has an old value; of the greatest value
-- there is no greater one
SET topology = CASE WHEN w.topology < 9223372036854775807
        THEN greatest(w.topology + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END
FROM living WHERE w.id = living.id
