-- The version of an entity, locked until the end of the transaction. None without a row. In transactions of the user.
-- Locks: the row.
-- $1 name, $2 key
SELECT e.version
FROM scoop.entity e
WHERE (e.name OPERATOR(pg_catalog.=) $1) AND (e.key OPERATOR(pg_catalog.=) $2)
FOR UPDATE
