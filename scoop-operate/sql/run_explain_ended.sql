-- How has a run ended, if it has?
-- Locks: nothing.
-- $1 root, $2 id
SELECT {ended_shown}
FROM scoop.ended_run r
{ended_by}
WHERE r.root = $1 AND r.id = $2 AND r.outcome <> 'dropped'
