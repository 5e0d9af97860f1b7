-- On which failed rollbacks below a run has an operator to decide first? On those because of which it failed, directly or through
-- others, and that failed because of none themselves. A run fails because of a child if that failed after the newest suspension of the
-- run; it has accepted earlier failures. Of the blocking children of each run the oldest failure first.
-- Locks: nothing.
-- $1 root, $2 the run, whose rollback failed, $3 how many at most
WITH RECURSIVE blocked AS (
    SELECT failed.run, e.cooperation_lineage AS lineage, suspended.created_at AS suspended_at
    FROM scoop.rollback_failure failed
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage FROM scoop.message_event e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = failed.root
          AND scoop.run_id(e.cooperation_lineage) = failed.run
        OFFSET 0
    ) e
    LEFT JOIN LATERAL (
        SELECT e.created_at FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = failed.run AND e.type = 'SUSPENDED'
        ORDER BY e.created_at DESC
        LIMIT 1
    ) suspended ON true
    WHERE failed.root = $1 AND failed.run = $2
  UNION ALL
    SELECT child.run, e.cooperation_lineage, suspended.created_at
    FROM blocked
    CROSS JOIN LATERAL (
        SELECT of_parent.run
        FROM (
            -- by these columns alone: otherwise the planner may read all failures of all hierarchies by their time
            SELECT failed.run, failed.failed_at FROM scoop.rollback_failure failed
            WHERE failed.root = $1 AND failed.parent = blocked.run
            OFFSET 0
        ) of_parent
        WHERE of_parent.failed_at > blocked.suspended_at
        ORDER BY of_parent.failed_at, of_parent.run
        OFFSET 0
    ) child
    -- the whole lineage has to fit: forged runs may name each other as parents
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage FROM scoop.message_event e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
          AND scoop.run_id(e.cooperation_lineage) = child.run
          AND trim_array(e.cooperation_lineage, 1) = blocked.lineage
        OFFSET 0
    ) e
    LEFT JOIN LATERAL (
        SELECT e.created_at FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = child.run AND e.type = 'SUSPENDED'
        ORDER BY e.created_at DESC
        LIMIT 1
    ) suspended ON true
)
SELECT blocked.run
FROM blocked
WHERE blocked.run <> $2 AND NOT EXISTS (
    SELECT FROM (
        SELECT failed.run, failed.failed_at FROM scoop.rollback_failure failed
        WHERE failed.root = $1 AND failed.parent = blocked.run
        OFFSET 0
    ) child
    CROSS JOIN LATERAL (
        SELECT FROM scoop.message_event e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
          AND scoop.run_id(e.cooperation_lineage) = child.run
          AND trim_array(e.cooperation_lineage, 1) = blocked.lineage
        OFFSET 0
    ) e
    WHERE child.failed_at > blocked.suspended_at
)
LIMIT $3
