-- Returns the state of an entity, if it has a row.
-- Locks: nothing.
-- $1 name, $2 key
SELECT version, state FROM scoop.entity WHERE name = $1::text AND key = $2::text
