-- Locks a due schedule. The caller launches its ticks and advances it, in the same
-- transaction; others leave it alone until then. Any of several will do: by age, one that has many
-- times to make up for would hold up all others.
-- Locks: the row of schedule.
-- $1 topics and $2 handlers (pairs)
SELECT s.topic, s.handler, s.every_ms, s.cron, s.zone, s.missed, s.overlap, s.next_at, s.run_count, s.last_root,
    clock_timestamp() AS now
FROM scoop.schedule s
JOIN unnest($1::text[], $2::text[]) AS mine (topic, handler)
    ON mine.topic = s.topic AND mine.handler = s.handler
WHERE s.next_at <= clock_timestamp()
ORDER BY random()
LIMIT 1
FOR UPDATE OF s SKIP LOCKED
