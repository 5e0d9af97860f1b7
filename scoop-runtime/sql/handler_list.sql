-- Lists the subscriptions of handlers, with their times, and the limits of their sagas.
-- Locks: nothing.
SELECT h.topic, h.handler, h.since,
       l.concurrency, l.concurrency_by_key, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM scoop.handler h
LEFT JOIN LATERAL (
    SELECT * FROM scoop.run_limit l
    WHERE l.saga >= '' AND h.handler::text = ANY (l.handlers)
    ORDER BY l.saga LIMIT 1
) l ON true
WHERE h.retired_at IS NULL
ORDER BY h.topic, h.handler
