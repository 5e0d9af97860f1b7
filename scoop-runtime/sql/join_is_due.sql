-- Returns whether the time of a waiting message of this key is over.
-- Locks: nothing. The transaction has the lock of the key (join_lock.sql).
-- $1 saga, $2 key, $3 topics
SELECT EXISTS (
    SELECT FROM scoop.join_member j
    WHERE j.saga = $1 AND j.key = $2 AND j.topic = ANY ($3::text[]) AND j.joined IS NULL AND j.expires_at <= clock_timestamp()
)
