-- Makes the rows of entities without an event, and returns which. One that another transaction has made meanwhile is not
-- among them.
-- Locks: the new rows; waits for another transaction that makes one of them.
-- $1 names and $2 keys (pairs, in their order)
INSERT INTO scoop.entity (name, key)
SELECT wanted.name, wanted.key
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (name, key, nth)
ORDER BY wanted.nth
ON CONFLICT (name, key) DO NOTHING
RETURNING name::text, key::text
