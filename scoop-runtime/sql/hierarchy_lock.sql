-- Locks a hierarchy, so that rollbacks begin one at a time in it.
-- Locks: an advisory lock of the hierarchy, until the end of the transaction.
-- $1 root
SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))
