-- Lists the interventions in a hierarchy, oldest first.
-- Locks: nothing.
-- $1 root
SELECT i.run, i.handler, i.step, i.kind, i.note, i.source, i.requested_at
FROM scoop.intervention i
WHERE i.root = $1
ORDER BY i.requested_at, i.id
