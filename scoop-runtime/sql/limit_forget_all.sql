-- Deletes what is recorded of claims of sagas whose limits are changed.
-- Locks: these rows of limit_log.
-- $1 names
DELETE FROM scoop.limit_log l WHERE l.saga = ANY ($1::text[])
