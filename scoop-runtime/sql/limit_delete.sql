-- Deletes the limits of sagas that have one of these names.
-- Locks: their rows of run_limit.
-- $1 names
DELETE FROM scoop.run_limit l WHERE l.handlers && $1::text[]
