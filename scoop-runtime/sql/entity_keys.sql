-- Returns keys of the entities of a name that have events, in their order.
-- Locks: nothing.
-- $1 name, $2 the key to continue after, $3 the number of keys at most
SELECT e.key
FROM scoop.entity e
WHERE e.name = $1::text AND e.key > $2::text AND e.version > 0
ORDER BY e.key
LIMIT $3
