-- Returns whether the time of a waiting message of this key is over.
-- Locks: nothing. The transaction has the lock of the key (join_lock.sql).
-- $1 saga, $2 key, $3 topics
SELECT EXISTS (
    SELECT FROM unnest($3::text[]) AS t (topic)
    CROSS JOIN LATERAL (
        SELECT FROM scoop.join_member j
        WHERE j.saga = $1 AND j.key = $2 AND j.topic = t.topic AND j.joined IS NULL AND j.refused IS NULL
          -- so written, it does not have the planner read the index of all limits
          AND coalesce(j.expires_at <= clock_timestamp(), false)
        OFFSET 0
    ) overdue
)
