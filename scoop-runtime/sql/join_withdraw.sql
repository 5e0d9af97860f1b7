-- Deletes a waiting message, and returns the root of the hierarchy that joins it, if it does not wait any more.
-- Locks: its row. The transaction has the lock of the key (join_lock.sql).
-- $1 the run of its collector
WITH gone AS (
    DELETE FROM scoop.join_member WHERE run = $1 AND joined IS NULL
)
SELECT joined FROM scoop.join_member WHERE run = $1 AND joined IS NOT NULL
