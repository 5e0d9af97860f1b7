-- Lists failed rollbacks that no operator has settled since, newest first. `undecided` has the runs on which an operator has to
-- decide before that run goes on: the run itself, or some below it. `failure_at` is the time of the failure, `failed_at` that of
-- the first one. A forged row is listed with what there is.
-- Locks: nothing.
-- $1 older than this (nothing: the newest), $2 and if as old, with a smaller id than this, $3 how many,
-- $4 the maximum length of `undecided`
WITH page AS MATERIALIZED (
    SELECT f.* FROM scoop.rollback_failure f
    WHERE f.failed_at >= '-infinity' AND (f.failed_at, f.run)
            < (coalesce($1::timestamptz, 'infinity'), coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    ORDER BY f.failed_at DESC, f.run DESC
    LIMIT $3
),
-- once for each hierarchy: each run below several runs of the page is read once
undecided AS MATERIALIZED (
    SELECT hierarchy.root, u.above, array_agg(u.run ORDER BY u.place) AS runs
    FROM (SELECT f.root, array_agg(f.run) AS runs FROM page f GROUP BY f.root) hierarchy
    CROSS JOIN LATERAL scoop.blocking_rollbacks(hierarchy.root, hierarchy.runs, false, $4) u
    GROUP BY hierarchy.root, u.above
)
SELECT coalesce(failed.lineage, ARRAY[f.root, f.run]) AS lineage, f.message_id, f.handler,
       coalesce((SELECT m.topic FROM scoop.message m WHERE m.id = f.message_id), 'unknown') AS topic,
       coalesce(again.step, failed.step) AS step,
       scoop.shown_failure(shown.exception) AS failure, coalesce(shown.failed_at, f.failed_at) AS failure_at,
       f.failed_at,
       coalesce(undecided.runs, '{}') AS undecided
FROM page f
LEFT JOIN undecided ON undecided.root = f.root AND undecided.above = f.run
LEFT JOIN LATERAL (
    SELECT e.cooperation_lineage AS lineage, e.step
    FROM scoop.message_event e
    -- with the message: otherwise the planner may read an index of all such events
    WHERE e.type = 'ROLLBACK_FAILED' AND e.message_id = f.message_id AND e.cooperation_lineage[1] = f.root
      AND scoop.run_id(e.cooperation_lineage) = f.run
    LIMIT 1
) failed ON true
LEFT JOIN LATERAL (
    SELECT a.step
    FROM scoop.repeated_failure a
    WHERE a.run = f.run
    ORDER BY a.failed_at DESC
    LIMIT 1
) again ON true
-- never null, so that no run is looked up for each row
LEFT JOIN LATERAL scoop.shown_rollback_failure(f.root, f.run, coalesce(undecided.runs[1], f.run)) shown ON true
ORDER BY f.failed_at DESC, f.run DESC
