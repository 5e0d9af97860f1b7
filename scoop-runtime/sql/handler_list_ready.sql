-- Lists the queues of a worker that have a due run. Reads at most so many queues as the worker has, whichever others there are, and
-- none of a handler without ready runs. A queue is read from the known position, as in run_claim.sql. Each row says when it has
-- looked, its snapshot and the id of its transaction; so there is one also without such a queue.
-- Locks: nothing.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples), $4 for each queue the position, null where
-- all of it is to be looked at; the same $5 of the runs with high and $6 of those with low priority; $7 the transactions in progress at
-- the last look, and $8 since when runs of each may be ready, null if that is unknown; $9 for each queue whether its new runs are paused
WITH RECURSIVE own_queue AS MATERIALIZED (
    SELECT handler, topic, lane, reached, reached_high, reached_low, begun_only
    FROM unnest($2::text[], $1::text[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $9::boolean[])
        AS own (handler, topic, lane, reached, reached_high, reached_low, begun_only)
),
late AS MATERIALIZED (
    SELECT min(coalesce(open.since, '-infinity')) AS since
    FROM unnest($7::text[], $8::timestamptz[]) AS open (xid, since)
    WHERE pg_visible_in_snapshot(open.xid::xid8, (SELECT pg_current_snapshot()))
),
{near_queues},
ready_queue AS (
    SELECT q.topic, q.handler, q.lane
    FROM near_queue q
    WHERE EXISTS (
        SELECT FROM (VALUES (0), (1), (-1)) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT FROM scoop.run r
            WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic AND r.reserved_for = q.lane
              AND scoop.priority_of(r.context) = level.priority
              AND r.ready_at >= least(
                  coalesce(CASE level.priority WHEN 0 THEN q.reached WHEN 1 THEN q.reached_high ELSE q.reached_low END, '-infinity'),
                  (SELECT since FROM late))
              AND r.ready_at <= (SELECT clock_timestamp())
              AND (NOT q.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
            ORDER BY r.ready_at
            LIMIT 1
        ) r
        OFFSET 0
    )
)
SELECT l.looked_at, l.snapshot, l.own_xid, q.topic, q.handler, q.lane
FROM (SELECT now() AS looked_at, pg_current_snapshot()::text AS snapshot, pg_current_xact_id()::text AS own_xid) l
LEFT JOIN ready_queue q ON true
