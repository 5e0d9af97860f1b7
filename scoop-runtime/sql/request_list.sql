-- Which requests to give up were made in this hierarchy, oldest first? A time outside the years 1 to 9999 is none.
-- Locks: nothing.
-- $1 the root
SELECT e.cooperation_lineage AS lineage, e.exception,
       CASE WHEN e.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN e.created_at
       END AS requested_at
FROM scoop.message_event e
WHERE e.type = 'CANCELLATION_REQUESTED'
  -- all lineages that begin with the root, in the order of the protocol's index
  AND e.cooperation_lineage >= ARRAY[$1::uuid]
  AND e.cooperation_lineage <= ARRAY[$1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]
ORDER BY e.created_at
