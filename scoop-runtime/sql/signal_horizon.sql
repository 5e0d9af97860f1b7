-- Returns the oldest transaction that may still commit a signal: those before it have ended.
-- Locks: nothing.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text
