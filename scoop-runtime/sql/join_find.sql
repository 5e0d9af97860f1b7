-- Returns the roots of the hierarchies that join a message: one for each saga that does.
-- Locks: nothing.
-- $1 message
SELECT j.joined FROM scoop.join_member j
WHERE j.message_id = $1 AND j.joined IS NOT NULL
ORDER BY j.saga
