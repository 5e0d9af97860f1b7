-- Moves a schedule on that this transaction has taken.
-- Locks: the row of schedule, which it has.
-- $1 the topic, $2 the handler, $3 when it is due next, empty for never, $4 how many ticks were
-- launched, $5 the root of the last of them
UPDATE scoop.schedule
SET next_at = coalesce($3::timestamptz, 'infinity'), run_count = run_count + $4, last_root = coalesce($5, last_root)
WHERE topic = $1 AND handler = $2
