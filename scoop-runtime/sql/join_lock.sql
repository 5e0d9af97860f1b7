-- Locks the waiting messages that a saga joins by one key, so that they form sets one at a time.
-- Locks: an advisory lock of the saga and the key, until the end of the transaction.
-- $1 saga, $2 key
SELECT pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 1))
