-- Lists the subscriptions of handlers, with their times, and the limits of their sagas: of several that name a handler, the first.
-- Joins the names of all limits at once, since a look for each handler would go through all of them.
-- Locks: nothing.
SELECT DISTINCT ON (h.topic, h.handler)
       h.topic, h.handler, h.since,
       l.concurrency, l.concurrency_by_key, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM scoop.handler h
LEFT JOIN (
    scoop.run_limit l CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
) ON names.handler = h.handler::text AND l.saga >= ''
WHERE h.retired_at IS NULL
ORDER BY h.topic, h.handler, l.saga
