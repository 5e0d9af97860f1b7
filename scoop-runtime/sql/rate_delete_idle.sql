-- Deletes keys of a saga of which no run counts for the rate any more. It follows limit_lock.sql in its transaction.
-- Locks: their rows of rate_window.
-- $1 the saga, $2 how many
DELETE FROM scoop.rate_window w
WHERE w.saga = $1 AND w.key = ANY (ARRAY(
    SELECT idle.key FROM scoop.rate_window idle
    WHERE idle.saga = $1 AND NOT idle.has_parked AND idle.idle_at <= clock_timestamp()
    ORDER BY idle.idle_at
    LIMIT $2
))
