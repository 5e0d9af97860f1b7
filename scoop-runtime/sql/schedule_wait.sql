-- In how many seconds is one of these schedules due? Nothing if none ever is. A time before the year 1 counts as that
-- year, since the server cannot calculate with an infinite one.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT extract(epoch FROM min(greatest('0001-01-01 00:00+00', s.next_at)) - clock_timestamp())::float8
FROM scoop.schedule s
JOIN unnest($1::text[], $2::text[]) AS mine (topic, handler)
    ON mine.topic = s.topic AND mine.handler = s.handler
WHERE s.next_at < 'infinity'
