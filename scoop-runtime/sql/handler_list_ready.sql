-- Lists the handlers that have a ready run. Reads the index from one such handler and priority to the next, so handlers
-- without ready runs cost nothing. A queue with a known position is read from there on, as in run_claim.sql, and left out of
-- that walk. A handler with runs of several priorities may come several times.
-- Locks: nothing.
-- $1 topics, $2 handlers and $6 the definitions that their runs are reserved for (triples); $3 topics, $4 handlers and
-- $7 definitions, $8 priorities, and how far their queues have been worked off, $5
WITH RECURSIVE worked_off AS MATERIALIZED (
    SELECT topic, handler, lane, priority, reached
    FROM unnest($3::text[], $4::text[], $7::int[], $8::int[], $5::timestamptz[])
        AS w (topic, handler, lane, priority, reached)
),
listed (handler, topic, lane, priority, ready_at, until_handler, until_topic, until_lane, until_priority) AS (
    SELECT handler, topic, lane, priority, NULL::timestamptz, lead(handler) OVER following, lead(topic) OVER following,
           lead(lane) OVER following, lead(priority) OVER following
    FROM (
        SELECT '' AS handler, '' AS topic, 0 AS lane, 0 AS priority
        UNION ALL SELECT handler, topic, lane, priority FROM worked_off
    ) begins
    WINDOW following AS (ORDER BY handler, topic, lane, priority)
    UNION ALL
    SELECT next.handler, next.topic, next.reserved_for, next.priority, next.ready_at, l.until_handler, l.until_topic,
           l.until_lane, l.until_priority
    FROM listed l
    CROSS JOIN LATERAL (
        (SELECT r.handler::text, r.topic::text, r.reserved_for, scoop.priority_of(r.context) AS priority, r.ready_at
         FROM scoop.run r
         WHERE r.state = 'ready'
           AND (r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context))
               > (l.handler, l.topic, l.lane, l.priority)
           AND l.until_handler IS NULL
         ORDER BY r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context), r.ready_at LIMIT 1)
        UNION ALL
        -- the bound is one of the index: without it the part that is left out would be gone through
        (SELECT r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context), r.ready_at
         FROM scoop.run r
         WHERE r.state = 'ready'
           AND (r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context))
               > (l.handler, l.topic, l.lane, l.priority)
           AND (r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context))
               < (l.until_handler, l.until_topic, l.until_lane, l.until_priority)
         ORDER BY r.handler, r.topic, r.reserved_for, scoop.priority_of(r.context), r.ready_at LIMIT 1)
    ) next
)
SELECT l.topic, l.handler, l.lane
FROM listed l
WHERE l.ready_at <= clock_timestamp()
  -- a case, so that this is no join: then it is a look into a hash table
  AND CASE WHEN (l.topic, l.handler, l.lane) IN (
      SELECT topic, handler, lane FROM unnest($1::text[], $2::text[], $6::int[]) AS own (topic, handler, lane)
  ) THEN true END
UNION ALL
SELECT w.topic, w.handler, w.lane
FROM worked_off w
WHERE EXISTS (
    SELECT FROM scoop.run r
    WHERE r.state = 'ready' AND r.handler = w.handler AND r.topic = w.topic AND r.reserved_for = w.lane
      AND scoop.priority_of(r.context) = w.priority
      AND r.ready_at >= least(w.reached, (SELECT clock_timestamp() - interval '1 second'))
      AND r.ready_at <= (SELECT clock_timestamp())
    OFFSET 0
)
