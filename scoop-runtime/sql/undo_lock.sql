-- Only one rollback at a time is begun in a hierarchy.
-- Locks: an advisory lock of the hierarchy, until the end of the transaction.
-- $1 root
SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))
