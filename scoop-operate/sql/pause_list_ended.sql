-- Lists the pauses that ended last, the latest end first. A forged row may have longer texts than programs write.
-- Locks: nothing.
-- $1 how many at most
SELECT p.kind, p.name::text, left(p.reason, 1000) AS reason, left(p.source, 1000) AS source, p.since, p.until, p.new_runs_only,
       p.ended_at, left(p.ended_by, 1000) AS ended_by, left(p.ended_reason, 1000) AS ended_reason
FROM scoop.ended_pause p
ORDER BY p.ended_at DESC
LIMIT $1
