-- The keys of a saga of which the rate admits a parked run.
-- Locks: nothing.
-- $1 the saga, $2 how many
SELECT w.key::text FROM scoop.rate_window w
WHERE w.saga = $1 AND w.has_parked AND w.opens_at <= clock_timestamp()
ORDER BY w.opens_at
LIMIT $2
