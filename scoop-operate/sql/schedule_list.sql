-- Lists the schedules, or a page of them.
-- Locks: nothing.
-- $1 topic and $2 handler to continue after, $3 how many, null for all
SELECT s.topic, s.handler, s.every_ms, s.cron, s.zone, s.missed, s.overlap,
       CASE WHEN s.next_at < 'infinity' THEN greatest('0001-01-01 00:00+00', s.next_at) END AS next_at,
       s.run_count, s.last_root
FROM scoop.schedule s
WHERE (s.topic, s.handler) > ($1::text, $2::text)
ORDER BY s.topic, s.handler
LIMIT $3
