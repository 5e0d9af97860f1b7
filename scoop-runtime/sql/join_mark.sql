-- Assigns messages to the hierarchy that joins them.
-- Locks: their rows.
-- $1 the runs of their collectors, $2 the root of the hierarchy
UPDATE scoop.join_member SET joined = $2 WHERE run = ANY ($1::uuid[]) AND joined IS NULL
