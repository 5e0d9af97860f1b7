-- The limits of sagas that have one of these names.
-- Locks: nothing.
-- $1 names
SELECT l.saga::text, l.handlers, l.concurrency, l.concurrency_by_key, l.serial, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, l.queue
FROM scoop.run_limit l
WHERE l.saga IN (
    SELECT named.saga
    FROM scoop.run_limit named
    CROSS JOIN LATERAL unnest(named.handlers) AS names (handler)
    JOIN unnest($1::text[]) AS asked (name) ON asked.name = names.handler
    WHERE named.saga >= ''
)
ORDER BY l.saga
