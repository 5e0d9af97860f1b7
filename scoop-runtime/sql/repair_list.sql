-- Lists the interventions in a hierarchy, oldest first. A time outside the years 1 to 9999 is moved to these.
-- Locks: nothing.
-- $1 root
SELECT i.run, i.handler, i.step, i.kind, i.note, i.source,
       least(greatest(i.requested_at, '0001-01-01Z'), '9999-12-31 23:59:59.999999Z') AS requested_at
FROM scoop.intervention i
WHERE i.root = $1
ORDER BY i.requested_at, i.id
