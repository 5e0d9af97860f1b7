-- Returns the oldest waiting message of each topic that a saga joins by one key. One that is not stored, or that no set can
-- hold, has no payload.
-- Locks: nothing. The transaction has the lock of the key (join_lock.sql).
-- $1 saga, $2 key, $3 topics, $4 how many bytes a set can hold of each
SELECT o.run, o.topic, o.message_id, o.traceparent, p.payload IS NOT NULL AS is_stored, m.is_fit, CASE WHEN m.is_fit THEN m.payload END AS payload
FROM unnest($3::text[]) AS t (topic)
CROSS JOIN LATERAL (
    SELECT j.run, j.topic, j.message_id, j.traceparent FROM scoop.join_member j
    WHERE j.saga = $1 AND j.key = $2 AND j.topic = t.topic AND j.joined IS NULL AND j.refused IS NULL
    ORDER BY j.since, j.run
    LIMIT 1
) o
-- a lookup for each of the few rows: a join could read all messages
CROSS JOIN LATERAL (SELECT (SELECT m.payload FROM scoop.message m WHERE m.id = o.message_id) AS payload) p
CROSS JOIN LATERAL (
    -- a set has an object of members around each of them
    SELECT p.payload, p.payload IS NOT NULL
        AND scoop.is_readable(jsonb_build_array(jsonb_build_array(p.payload)), $4::int) AS is_fit OFFSET 0
) m
