-- The time in microseconds since 1970, and for these keys of a saga the runs that began in the last period. It follows
-- limit_lock.sql in its transaction; there is always a first row, with the time.
-- Locks: nothing.
-- $1 the saga, $2 keys
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, w.key::text, w.begun, w.has_parked
FROM (SELECT) AS always
LEFT JOIN scoop.rate_window w ON w.saga = $1 AND w.key = ANY ($2::text[])
