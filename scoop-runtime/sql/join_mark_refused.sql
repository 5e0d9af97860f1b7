-- Sets waiting messages aside that no set can hold: they do not wait any more.
-- Locks: their rows. The transaction has the lock of the key (join_lock.sql).
-- $1 the runs of their collectors, $2 why
UPDATE scoop.join_member SET refused = $2 WHERE run = ANY ($1::uuid[]) AND joined IS NULL
