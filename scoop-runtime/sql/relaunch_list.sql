-- Of which hierarchy is this one a relaunch, and as which ones was it relaunched, the oldest first?
-- Locks: nothing.
-- $1 the hierarchy
SELECT r.root, r.of_root FROM scoop.relaunch r WHERE r.root = $1
UNION ALL
(SELECT r.root, r.of_root FROM scoop.relaunch r WHERE r.of_root = $1 ORDER BY r.requested_at, r.root)
