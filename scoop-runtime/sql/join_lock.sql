-- Locks the waiting messages that a saga joins by one key, so that they form sets one at a time. Returns whether the lock was
-- free: a transaction does not wait for it, so that a key which stays locked takes no connection.
-- Locks: an advisory lock of the saga and the key, until the end of the transaction.
-- $1 saga, $2 key
SELECT pg_try_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 1))
