-- In how many seconds is one of these schedules due, and which of them have no row? Nothing if none ever is. A time
-- before the year 1 counts as that year, since the server cannot calculate with an infinite one.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT extract(epoch FROM
           min(greatest('0001-01-01 00:00+00', s.next_at)) FILTER (WHERE s.next_at < 'infinity') - clock_timestamp()
       )::float8 AS seconds,
       coalesce(array_agg(mine.handler) FILTER (WHERE s.handler IS NULL), '{}') AS unlisted
FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
LEFT JOIN scoop.schedule s ON s.topic = mine.topic AND s.handler = mine.handler
