-- Deletes what is recorded for the rates of sagas.
-- Locks: their rows of rate_window.
-- $1 the names of the sagas, $2 the one whose rows stay, if any
DELETE FROM scoop.rate_window w WHERE w.saga = ANY ($1::text[]) AND w.saga IS DISTINCT FROM $2::text
