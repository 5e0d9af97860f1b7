-- By how many seconds are the newest events ahead of the clock of the server? More than a moment means that the clock was set
-- back. Reads the newest events by their ids.
-- Locks: nothing.
SELECT coalesce(extract(epoch FROM max(newest.created_at) - clock_timestamp()), 0)::float8
FROM (SELECT e.created_at FROM scoop.message_event e ORDER BY e.id DESC LIMIT 100) newest
