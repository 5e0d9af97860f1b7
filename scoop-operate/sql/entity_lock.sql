-- The state of an entity, locked until the end of the transaction.
-- Locks: its row; waits for another transaction that decides about it.
-- $1 name, $2 key
SELECT version, state FROM scoop.entity WHERE name = $1::text AND key = $2::text FOR UPDATE
