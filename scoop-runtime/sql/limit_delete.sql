-- Deletes the limits of sagas that have one of these names, also as the name of the row: a damaged one may have other handlers.
-- Locks: their rows of run_limit.
-- $1 names
DELETE FROM scoop.run_limit l WHERE l.handlers && $1::text[] OR l.saga = ANY ($1::text[])
