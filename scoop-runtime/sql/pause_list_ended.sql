-- Lists the pauses that ended last, the latest end first.
-- Locks: nothing.
-- $1 how many at most
SELECT p.kind, p.name::text, p.reason, p.source, p.since, p.until, p.ended_at, p.ended_by, p.ended_reason
FROM scoop.ended_pause p
ORDER BY p.ended_at DESC
LIMIT $1
