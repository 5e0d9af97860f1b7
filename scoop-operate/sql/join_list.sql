-- Lists the messages that wait for the others of their set, and those that no set can hold, longest first.
-- Locks: nothing.
-- $1 how many at most
SELECT j.saga, j.key, j.topic, j.message_id, j.since, j.expires_at, j.refused
FROM scoop.join_member j
WHERE j.joined IS NULL
ORDER BY j.since, j.run
LIMIT $1
