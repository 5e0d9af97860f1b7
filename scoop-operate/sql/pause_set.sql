-- Pauses something, or replaces all but the beginning of its pause. It follows topology_change.sql in its
-- transaction: claims by the former topology take nothing after the commit.
-- Locks: its row of pause.
-- $1 kind and $2 name, $3 the reason, $4 the requester, $5 for how many seconds at most, null for no limit, $6 whether for new runs only
INSERT INTO scoop.pause (kind, name, reason, source, until, new_runs_only)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::float8 * interval '1 second', $6)
ON CONFLICT (kind, name) DO UPDATE
SET reason = excluded.reason, source = excluded.source, until = excluded.until, new_runs_only = excluded.new_runs_only
RETURNING kind, name::text, reason, source, since, until, new_runs_only
