-- Returns events of an entity after a version, oldest first, each with its message, which is null if it is missing.
-- Locks: nothing.
-- $1 name, $2 key, $3 version, $4 the number of events at most
SELECT e.version, e.at, e.message_id, e.run, m.topic, m.payload
FROM scoop.entity_event e
LEFT JOIN LATERAL (
    SELECT m.topic, m.payload FROM scoop.message m WHERE m.id = e.message_id
    OFFSET 0
) m ON true
WHERE e.name = $1::text AND e.key = $2::text AND e.version > $3
ORDER BY e.version
LIMIT $4
