-- Returns the set of a waiting message whose time is over: the oldest waiting message of each topic. If an older message on
-- its own topic has more time, the message is alone. Returns nothing if it does not wait any more. A message that is not
-- stored, or that no set can hold, has no payload.
-- Locks: nothing. The transaction has the lock of the key (join_lock.sql).
-- $1 saga, $2 key, $3 topics, $4 how many bytes a set can hold of each, $5 the run of the collector of the message
WITH overdue AS MATERIALIZED (
    SELECT j.run, j.topic, j.message_id, j.traceparent, coalesce(oldest.expires_at <= clock_timestamp(), false) AS is_first
    FROM scoop.join_member j
    CROSS JOIN LATERAL (
        SELECT o.expires_at FROM scoop.join_member o
        WHERE o.saga = $1 AND o.key = $2 AND o.topic = j.topic AND o.joined IS NULL AND o.refused IS NULL
        ORDER BY o.since, o.run
        LIMIT 1
    ) oldest
    -- the condition on `refused` is so written that the planner looks up the run
    WHERE j.run = $5 AND j.joined IS NULL AND coalesce(j.refused, '') = '' AND j.expires_at <= clock_timestamp()
)
SELECT o.run, o.topic, o.message_id, o.traceparent, p.payload IS NOT NULL AS is_stored, m.is_fit, CASE WHEN m.is_fit THEN m.payload END AS payload
FROM (
    SELECT run, topic, message_id, traceparent FROM overdue WHERE NOT is_first
    UNION ALL
    SELECT first.run, first.topic, first.message_id, first.traceparent
    FROM unnest($3::text[]) AS t (topic)
    CROSS JOIN LATERAL (
        SELECT j.run, j.topic, j.message_id, j.traceparent FROM scoop.join_member j
        WHERE j.saga = $1 AND j.key = $2 AND j.topic = t.topic AND j.joined IS NULL AND j.refused IS NULL
        ORDER BY j.since, j.run
        LIMIT 1
    ) first
    WHERE EXISTS (SELECT FROM overdue WHERE is_first)
) o
-- a lookup for each of the few rows: a join could read all messages
CROSS JOIN LATERAL (SELECT (SELECT m.payload FROM scoop.message m WHERE m.id = o.message_id) AS payload) p
CROSS JOIN LATERAL (
    -- a set has an object of members around each of them
    SELECT p.payload, p.payload IS NOT NULL
        AND scoop.is_readable(jsonb_build_array(jsonb_build_array(p.payload)), $4::int) AS is_fit OFFSET 0
) m
