-- Lists the queues of a worker that have a due run. Reads at most so many queues as the worker has, whichever others there are, and
-- none of a handler without ready runs. A queue is read from the known position, as in run_claim.sql.
-- Locks: nothing.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples), $4 for each queue how far it has been worked
-- off, null where all of it is to be looked at; the same $5 of the runs with high and $6 of those with low priority
WITH RECURSIVE own_queue AS MATERIALIZED (
    SELECT handler, topic, lane, reached, reached_high, reached_low
    FROM unnest($2::text[], $1::text[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[])
        AS own (handler, topic, lane, reached, reached_high, reached_low)
),
{near_queues}
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
              (SELECT clock_timestamp() - interval '1 second'))
          AND r.ready_at <= (SELECT clock_timestamp())
        ORDER BY r.ready_at
        LIMIT 1
    ) r
    OFFSET 0
)
