-- Lists the schedules.
-- Locks: nothing.
SELECT s.topic, s.handler, s.every_ms, s.cron, s.zone, s.missed, s.overlap,
       CASE WHEN s.next_at < 'infinity' THEN greatest('0001-01-01 00:00+00', s.next_at) END AS next_at,
       s.run_count, s.last_root
FROM scoop.schedule s
ORDER BY s.topic, s.handler
