-- Makes the rows of entities without an event. Fewer rows are affected if another transaction has made one meanwhile.
-- Locks: the new rows; waits for another transaction that makes one of them.
-- $1 names and $2 keys (pairs, in their order)
INSERT INTO scoop.entity (name, key)
SELECT wanted.name, wanted.key
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (name, key, nth)
ORDER BY wanted.nth
ON CONFLICT (name, key) DO NOTHING
