-- Returns parked runs to their queues, as ready from now on, whose saga has no limit by key any more: they were locked when it changed, or its row is
-- lost. Goes through the index of parked runs from one handler to the next. Returns the handlers.
-- Locks: the rows of these runs, without those that other transactions have locked.
-- $1 how many of a handler at most
WITH RECURSIVE parked_handler (handler) AS (
    (SELECT r.handler FROM scoop.run r WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL ORDER BY r.handler LIMIT 1)
    UNION ALL
    SELECT next.handler
    FROM parked_handler p
    CROSS JOIN LATERAL (
        SELECT r.handler FROM scoop.run r
        WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler > p.handler
        ORDER BY r.handler LIMIT 1
    ) next
),
limited (handler) AS MATERIALIZED (
    SELECT names.handler
    FROM scoop.run_limit l
    CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
    WHERE l.saga >= '' AND (l.concurrency_by_key OR l.rate_by_key)
),
-- before the rows are locked: those of the others stay as they are
without_limit AS MATERIALIZED (
    SELECT p.handler FROM parked_handler p
    WHERE NOT EXISTS (SELECT FROM limited l WHERE l.handler = p.handler::text)
),
orphaned AS MATERIALIZED (
    SELECT r.ctid
    FROM without_limit w
    CROSS JOIN LATERAL (
        SELECT r.ctid FROM scoop.run r
        WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = w.handler
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    ) r
),
returned AS (
    UPDATE scoop.run r
    SET ready_at = clock_timestamp(), parked_since = NULL, limit_key = NULL
    WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM orphaned))
    RETURNING r.handler
)
SELECT DISTINCT r.handler::text FROM returned r
