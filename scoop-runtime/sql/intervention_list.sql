-- Lists the interventions in a hierarchy, oldest first.
-- Locks: nothing.
-- $1 root
SELECT i.run, i.handler, i.step, i.kind, left(i.note, 10000) AS note, left(i.source, 10000) AS source, i.requested_at
FROM scoop.intervention i
WHERE i.root = $1
ORDER BY i.requested_at, i.id
