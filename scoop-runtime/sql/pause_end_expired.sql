-- Ends the pauses whose time is over. It follows topology_change.sql in its transaction, so one at a time ends them.
-- Locks: these rows of pause.
DELETE FROM scoop.pause WHERE until <= clock_timestamp()
RETURNING kind, name::text, reason, source, since, until
