-- Lists the waiting runs below an id that are marked to give up. They may be ready, and the answer of an earlier
-- attempt of the request may be lost.
-- Locks: nothing.
-- $1 root, $2 the id of the hierarchy or run
SELECT r.root, r.id, r.last_event_at AS at
FROM scoop.run r
WHERE r.root = $1 AND $2 = ANY (r.lineage) AND r.giving_up
