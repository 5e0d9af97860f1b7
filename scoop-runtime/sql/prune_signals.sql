-- Deletes signals that reach no run any more, and returns how many: see `0009_retention.sql`.
-- Locks: the deleted rows.
-- $1 since how many seconds, $2 how many at most, $3 whether to count only
SELECT scoop.prune_signals($1::float8 * interval '1 second', $2, $3)
