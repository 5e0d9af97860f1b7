-- Lists the pauses, longest first.
-- Locks: nothing.
SELECT kind, name::text, reason, source, since, until FROM scoop.pause ORDER BY since, kind, name
