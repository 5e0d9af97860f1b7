-- Lists the pauses, longest first. A forged row may have longer texts than programs write.
-- Locks: nothing.
SELECT kind, name::text, left(reason, 1000) AS reason, left(source, 1000) AS source, since, until, new_runs_only FROM scoop.pause ORDER BY since, kind, name
