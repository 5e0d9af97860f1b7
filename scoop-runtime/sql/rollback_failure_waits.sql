-- Which undecided rollbacks cannot be decided now, and which runs must end first? These are unfinished runs below it whose own
-- rollback has not failed. A row without one says that the runs above it have not recorded its failure yet. The rule is that of
-- `FailedRollbacks::decide`.
-- Locks: nothing.
-- $1 root, $2 the undecided rollbacks, $3 the maximum number of runs below each
SELECT failed.run AS failed, below.id AS below, below.handler::text AS handler
FROM unnest($2::uuid[]) AS failed (run)
CROSS JOIN LATERAL (
    SELECT r.id, r.handler FROM scoop.run r
    WHERE r.root = $1 AND failed.run = ANY (r.lineage) AND r.id <> failed.run
      -- The column has the failure of an ended run, for its parent. An ended run without one is settled, which its parent has not
      -- recorded yet.
      AND r.rollback_failure IS NULL AND (NOT r.rollback_failed_before OR r.state::text = 'ended')
    ORDER BY r.id
    LIMIT $3
) below
UNION ALL
SELECT failed.run, NULL, NULL
FROM unnest($2::uuid[]) AS failed (run)
-- first whether there is a run for which any of them could wait
WHERE EXISTS (
    SELECT FROM scoop.run r
    WHERE r.root = $1 AND (r.rollback_failed_before OR r.rollback_failure IS NOT NULL)
      AND r.state::text <> 'waiting' AND NOT (r.state::text = 'stuck' AND r.awaits_operator)
) AND EXISTS (
    -- without duplicates, so that it ends at forged events that lead in a circle
    WITH RECURSIVE blocked (run, parent, failed_at) AS (
        SELECT failed.run, e.cooperation_lineage[cardinality(e.cooperation_lineage) - 1], e.created_at
        FROM scoop.message_event e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
          AND scoop.run_id(e.cooperation_lineage) = failed.run
        UNION
        SELECT above.run, above.parent, above.failed_at
        FROM blocked
        CROSS JOIN LATERAL (
            SELECT blocked.parent AS run, e.cooperation_lineage[cardinality(e.cooperation_lineage) - 1] AS parent,
                   e.created_at AS failed_at
            FROM scoop.message_event e
            WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
              AND scoop.run_id(e.cooperation_lineage) = blocked.parent
              AND blocked.failed_at > (
                  SELECT s.created_at FROM scoop.message_event s
                  WHERE scoop.run_id(s.cooperation_lineage) = blocked.parent AND s.type = 'SUSPENDED'
                  ORDER BY s.created_at DESC
                  LIMIT 1
              )
            OFFSET 0
        ) above
    )
    SELECT FROM blocked b
    -- a count, so that each is looked up by its key
    WHERE (SELECT count(*) FROM scoop.run r
           WHERE r.root = $1 AND r.id = b.run AND r.state::text <> 'waiting'
             AND NOT (r.state::text = 'stuck' AND r.awaits_operator)) > 0
)
