-- Lists the requests to cancel in a hierarchy, oldest first. A time outside the years 1 to 9999 is null.
-- Locks: nothing.
-- $1 the root
SELECT e.cooperation_lineage AS lineage, scoop.shown_failure(e.exception) AS exception,
       CASE WHEN e.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN e.created_at
       END AS requested_at
FROM scoop.message_event e
WHERE e.type = 'CANCELLATION_REQUESTED'
  AND e.cooperation_lineage[1] = $1
ORDER BY e.created_at
