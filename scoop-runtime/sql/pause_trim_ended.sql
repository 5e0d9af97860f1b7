-- Deletes old ended pauses: see `0002_pauses.sql`. It follows pause_end.sql or pause_end_expired.sql in its transaction.
-- Locks: the deleted rows.
SELECT scoop.trim_ended_pauses()
