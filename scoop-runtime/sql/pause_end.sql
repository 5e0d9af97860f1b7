-- Ends the pause of something. It follows topology_change.sql in its transaction.
-- Locks: its row of pause.
-- $1 kind and $2 name
DELETE FROM scoop.pause WHERE kind = $1 AND name = $2
RETURNING kind, name::text, reason, source, since, until
