-- The time in microseconds since 1970, and for these keys of a saga the runs that began in the last period, the time from which the
-- next one may begin, and from when on none of them counts. It follows limit_lock.sql in its transaction; there is always a first row,
-- with the time. A value that is much larger than those of programs is left out.
-- Locks: nothing.
-- $1 the saga, $2 keys
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, w.key::text,
       CASE WHEN pg_column_size(w.begun) <= 16384 THEN w.begun END AS begun, w.has_parked,
       (extract(epoch FROM greatest('1970-01-01Z', least('9999-12-31Z', w.opens_at))) * 1000000)::bigint AS opens_at,
       (extract(epoch FROM greatest('1970-01-01Z', least('9999-12-31Z', w.idle_at))) * 1000000)::bigint AS idle_at
FROM (SELECT) AS always
LEFT JOIN scoop.rate_window w ON w.saga = $1 AND w.key = ANY ($2::text[])
