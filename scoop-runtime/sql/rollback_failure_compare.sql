-- Which of the newest failed rollbacks differ between their list and the record? Those of the list, and of each saga those that are
-- recorded, also if they are settled: one that is settled has none by the record. One row without a run if none differs.
-- Locks: nothing.
-- $1 how many of both, $2 of how many sagas, $3 the maximum number of differences
WITH failed (handler) AS MATERIALIZED (
    SELECT h.handler
    FROM unnest('{ROLLBACK_FAILED}'::scoop.message_event_type[]) AS k (type)
    CROSS JOIN LATERAL (
{ended_handlers}
        LIMIT $2
    ) h
),
newest AS MATERIALIZED (
    (SELECT f.root, f.run FROM scoop.rollback_failure f
     WHERE f.failed_at >= '-infinity'
     ORDER BY f.failed_at DESC, f.run DESC LIMIT $1)
    UNION
    SELECT e.root, e.run
    FROM failed
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage[1] AS root, scoop.run_id(e.cooperation_lineage) AS run
        FROM scoop.run_end e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.coroutine_name = failed.handler
        ORDER BY e.created_at DESC
        LIMIT (SELECT $1 / greatest(count(*), 1) + 1 FROM failed)
    ) e
),
different AS (
    SELECT n.root, n.run, coalesce(kept.message_id, recorded.message_id) AS message_id,
           coalesce(kept.handler, recorded.handler)::text AS handler,
           CASE WHEN kept.handler IS NOT NULL THEN to_jsonb(kept) - '{root,run}'::text[] END AS kept,
           CASE WHEN recorded.handler IS NOT NULL THEN to_jsonb(recorded) - '{root,run}'::text[] END AS recorded
    FROM newest n
    LEFT JOIN LATERAL (
        SELECT f.* FROM scoop.rollback_failure f WHERE f.root = n.root AND f.run = n.run OFFSET 0
    ) kept ON true
    LEFT JOIN LATERAL (
        SELECT f.* FROM scoop.recorded_rollback_failure f WHERE f.root = n.root AND f.run = n.run OFFSET 0
    ) recorded ON true
    WHERE (kept.parent, kept.depth, kept.handler, kept.message_id, kept.failed_at)
            IS DISTINCT FROM (recorded.parent, recorded.depth, recorded.handler, recorded.message_id, recorded.failed_at)
    LIMIT $3
)
SELECT compared.count, d.*
FROM (SELECT count(*) AS count FROM newest) compared
LEFT JOIN different d ON true
ORDER BY d.root, d.run
