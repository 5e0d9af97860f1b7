-- Deletes the oldest rows about claims of a saga, from one on that the process has not deleted yet. It follows limit_lock.sql in its
-- transaction.
-- Locks: these rows of limit_log.
-- $1 saga, $2 the first and $3 the last number
DELETE FROM scoop.limit_log l WHERE l.saga = $1 AND l.number BETWEEN $2 AND $3
