-- Which of these messages exist, apart from those that are kept for their unique keys only?
-- Locks: nothing.
-- $1 the ids of messages
SELECT m.id
FROM unnest($1::uuid[]) AS asked (id)
CROSS JOIN LATERAL (SELECT m.id FROM scoop.message m WHERE m.id = asked.id OFFSET 0) m
WHERE NOT EXISTS (SELECT FROM scoop.kept_key k WHERE k.message_id = m.id)
