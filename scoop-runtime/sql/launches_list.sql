-- On which topics do the steps of these sagas launch messages, as far as is known?
-- Locks: nothing.
-- $1 sagas, null for all
SELECT l.saga, l.step, l.topic, l.declared, l.seen_at
FROM scoop.launches l
WHERE $1::text[] IS NULL OR l.saga = ANY ($1)
ORDER BY l.saga, l.step, l.topic
