-- Which runs give up here by now? Those that wait may be ready, and whoever asked may not have learned
-- of an earlier answer.
-- Locks: nothing.
-- $1 root, $2 the id of the hierarchy or run
SELECT r.root, r.id, r.last_event_at AS at
FROM scoop.run r
WHERE r.root = $1 AND $2 = ANY (r.lineage) AND r.gives_up
