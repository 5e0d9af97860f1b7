-- Returns the oldest waiting message of each topic that a saga joins by one key.
-- Locks: nothing. The transaction has the lock of the key (join_lock.sql).
-- $1 saga, $2 key, $3 topics
SELECT o.run, o.topic,
       -- a lookup for each of the few rows: a join could read all messages
       coalesce((SELECT m.payload FROM scoop.message m WHERE m.id = o.message_id), 'null') AS payload
FROM unnest($3::text[]) AS t (topic)
CROSS JOIN LATERAL (
    SELECT j.run, j.topic, j.message_id FROM scoop.join_member j
    WHERE j.saga = $1 AND j.key = $2 AND j.topic = t.topic AND j.joined IS NULL
    ORDER BY j.since, j.run
    LIMIT 1
) o
