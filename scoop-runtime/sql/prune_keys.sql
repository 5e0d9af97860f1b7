-- Deletes unique keys of deleted hierarchies whose time is over, and returns how many: see `0009_retention.sql`.
-- Locks: the deleted rows.
-- $1 how many at most, $2 whether to count only
SELECT scoop.prune_keys($1, $2)
