-- In how many seconds is one of these schedules due? Nothing if none ever is.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT extract(epoch FROM min(s.next_at) - clock_timestamp())::float8
FROM scoop.schedule s
JOIN unnest($1::text[], $2::text[]) AS mine (topic, handler)
    ON mine.topic = s.topic AND mine.handler = s.handler
WHERE isfinite(s.next_at)
