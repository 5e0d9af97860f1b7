-- Lists the subscriptions of handlers, or a part of them, with their times, and the limits of their sagas: of several that name a
-- handler, the first. A limit that has only the name of its saga is looked up by that name. All limits with several names are read
-- once, since a look for each handler would go through all of these.
-- Locks: nothing.
-- $1 topic and $2 handler to continue after, $3 a text that the name of one of both has, $4 how many, null for all;
-- of topic $5 and of handler $6, null for any
WITH listed AS MATERIALIZED (
    SELECT h.topic, h.handler, h.since, h.service
    FROM scoop.handler h
    WHERE h.retired_at IS NULL AND (h.topic, h.handler) > ($1::text, $2::text)
      AND (strpos(h.topic, $3) > 0 OR strpos(h.handler, $3) > 0)
      AND ($5::text IS NULL OR h.topic = $5) AND ($6::text IS NULL OR h.handler = $6)
    ORDER BY h.topic, h.handler
    LIMIT $4
),
limit_with_several_names AS MATERIALIZED (
    SELECT names.handler, min(l.saga::text) AS saga
    FROM scoop.run_limit l
    CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
    WHERE l.handlers <> ARRAY[l.saga::text]
    GROUP BY names.handler
)
SELECT h.topic, h.handler, h.since, h.service,
       l.concurrency, l.concurrency_by_key, l.serial, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM listed h
LEFT JOIN limit_with_several_names s ON s.handler = h.handler::text
LEFT JOIN LATERAL (
    SELECT l.* FROM scoop.run_limit l
    WHERE l.saga = ANY (ARRAY[s.saga, h.handler::text])
      AND (l.saga = s.saga OR l.handlers = ARRAY[l.saga::text])
    ORDER BY l.saga
    LIMIT 1
) l ON true
ORDER BY h.topic, h.handler
