-- Of which parts does a hierarchy consist: itself and its runs?
-- Locks: nothing.
-- $1 the hierarchy
SELECT $1::uuid AS id UNION ALL SELECT r.id FROM scoop.ended_run r WHERE r.root = $1
