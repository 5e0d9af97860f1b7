-- Which of my many handlers have something ready? Goes through the index from one handler that has to
-- the next, so those that have nothing cost nothing. Where it is known how far a queue has been worked off, it is
-- looked at by itself from there on, as run_claim.sql does, and the index is gone through between these alone.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs); $3 topics, $4 handlers and how far their queues have been worked off, $5
WITH RECURSIVE worked_off AS MATERIALIZED (
    SELECT topic, handler, reached FROM unnest($3::text[], $4::text[], $5::timestamptz[]) AS w (topic, handler, reached)
),
listed (handler, topic, ready_at, until_handler, until_topic) AS (
    SELECT handler, topic, NULL::timestamptz, lead(handler) OVER following, lead(topic) OVER following
    FROM (SELECT '' AS handler, '' AS topic UNION ALL SELECT handler, topic FROM worked_off) begins
    WINDOW following AS (ORDER BY handler, topic)
    UNION ALL
    SELECT next.handler, next.topic, next.ready_at, l.until_handler, l.until_topic
    FROM listed l
    CROSS JOIN LATERAL (
        (SELECT r.handler::text, r.topic::text, r.ready_at FROM scoop.run r
         WHERE r.state = 'ready' AND (r.handler, r.topic) > (l.handler, l.topic) AND l.until_handler IS NULL
         ORDER BY r.handler, r.topic, r.ready_at LIMIT 1)
        UNION ALL
        -- the bound is one of the index: without it the part that is left out would be gone through
        (SELECT r.handler, r.topic, r.ready_at FROM scoop.run r
         WHERE r.state = 'ready' AND (r.handler, r.topic) > (l.handler, l.topic)
           AND (r.handler, r.topic) < (l.until_handler, l.until_topic)
         ORDER BY r.handler, r.topic, r.ready_at LIMIT 1)
    ) next
)
SELECT l.topic, l.handler
FROM listed l
WHERE l.ready_at <= clock_timestamp()
  -- a case, so that this is no join: then it is a look into a hash table
  AND CASE WHEN (l.topic, l.handler) IN (
      SELECT topic, handler FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
  ) THEN true END
UNION ALL
SELECT w.topic, w.handler
FROM worked_off w
WHERE EXISTS (
    SELECT FROM scoop.run r
    WHERE r.state = 'ready' AND r.handler = w.handler AND r.topic = w.topic
      AND r.ready_at >= least(w.reached, (SELECT clock_timestamp() - interval '1 second'))
      AND r.ready_at <= (SELECT clock_timestamp())
    OFFSET 0
)
