-- Lists the requests to cancel these runs of a hierarchy, or all of it, oldest first. A time outside the years 1 to 9999 is null.
-- Locks: nothing.
-- $1 the root, $2 the ids of the runs, and the root; null for all requests of the hierarchy
SELECT e.cooperation_lineage AS lineage, scoop.shown_failure(e.exception) AS exception,
       CASE WHEN e.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN e.created_at
       END AS requested_at
FROM (
    SELECT e.cooperation_lineage, e.exception, e.created_at
    FROM scoop.message_event e
    WHERE $2::uuid[] IS NULL AND e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = $1
    UNION ALL
    SELECT e.cooperation_lineage, e.exception, e.created_at
    FROM unnest($2::uuid[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.exception, e.created_at
        FROM scoop.message_event e
        WHERE e.type = 'CANCELLATION_REQUESTED'
          AND e.cooperation_lineage[1] = $1 AND scoop.run_id(e.cooperation_lineage) = asked.id
        OFFSET 0
    ) e
    -- looked up once: mostly there are none
    WHERE EXISTS (
        SELECT FROM scoop.message_event e
        WHERE e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = $1
    )
) e
ORDER BY e.created_at, e.cooperation_lineage
