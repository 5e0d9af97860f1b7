-- Returns the forward path of a run: its newest suspension of either direction, with the window of the newest part of
-- its rollback if the history is long; then the suspensions and launches of the forward path, newest first: all of that
-- window, or a number from the end on. If these are all, the values of the steps as well, by name. Of a run that went on
-- anew only the newest execution is read, and the message of that; its values are not.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 how the names of the parts of its rollback begin,
-- $4 how many events, $5 until when, without the newest suspension; null for all that
WITH
-- the newest execution of a run that continued as new: the history begins with it
begun AS MATERIALIZED (
    SELECT x.began_at, x.suspensions, x.number, x.message_id
    FROM scoop.execution x
    WHERE x.run = $1
    ORDER BY x.number DESC
    LIMIT 1
),
newest AS MATERIALIZED (
    SELECT e.step, e.jump, e.child_failure_handler_iteration AS handling, starts_with(e.step, $3) AS is_part
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND $5::timestamptz IS NULL
      AND e.created_at > coalesce((SELECT began_at FROM begun), '-infinity')
    ORDER BY e.created_at DESC
    LIMIT 1
),
-- a part that an operator has skipped names no window; then the one before does
marked AS MATERIALIZED (
    SELECT e.jump::jsonb AS bounds
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $2
      AND starts_with(e.step, $3) AND e.jump IS NOT NULL AND (SELECT is_part FROM newest)
      AND e.created_at > coalesce((SELECT began_at FROM begun), '-infinity')
    ORDER BY e.created_at DESC
    LIMIT 1
),
bounds AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM marked) AS known,
           (SELECT 'epoch'::timestamptz + ((bounds #>> '{before,until}')::bigint + 1) * interval '1 microsecond'
            FROM marked) AS since,
           coalesce(
               $5,
               (SELECT 'epoch'::timestamptz + (bounds ->> 'until')::bigint * interval '1 microsecond' FROM marked),
               (SELECT e.created_at
                FROM scoop.message_event e
                WHERE scoop.run_id(e.cooperation_lineage) = $1
                  AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND NOT starts_with(e.step, $3)
                  AND e.created_at > coalesce((SELECT began_at FROM begun), '-infinity')
                ORDER BY e.created_at DESC
                LIMIT 1)
           ) AS until
),
recorded AS MATERIALIZED (
    SELECT e.id, e.type, e.message_id, e.step, e.child_failure_handler_iteration AS handling, e.definition,
           e.wait ? 'messages' AS by_strategy, e.created_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      AND e.type IN ('SUSPENDED', 'EMITTED') AND e.coroutine_name = $2
      AND e.created_at >= coalesce((SELECT since FROM bounds), '-infinity')
      AND e.created_at > coalesce((SELECT began_at FROM begun), '-infinity')
      AND e.created_at <= (SELECT until FROM bounds)
    ORDER BY e.created_at DESC
    LIMIT (SELECT CASE WHEN NOT known THEN $4::bigint END FROM bounds)
)
SELECT n.step, n.jump, n.handling, NULL::int AS definition, NULL::boolean AS by_strategy, NULL::uuid AS emitted,
       NULL::timestamptz AS created_at, NULL::uuid AS id,
       (SELECT bounds::text FROM marked) AS bounds,
       -- a part that is done, not only handlers of what stood in the way of the first one
       CASE WHEN n.handling IS NULL THEN n.is_part ELSE starts_with((
           SELECT e.step
           FROM scoop.message_event e
           WHERE scoop.run_id(e.cooperation_lineage) = $1
             AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND e.child_failure_handler_iteration IS NULL
             AND e.created_at > coalesce((SELECT began_at FROM begun), '-infinity')
           ORDER BY e.created_at DESC
           LIMIT 1
       ), $3) IS TRUE END AS has_begun,
       CASE WHEN NOT b.known AND (SELECT count(*) FROM recorded) < $4 AND NOT EXISTS (SELECT FROM begun) THEN (
           SELECT jsonb_object_agg(variable_name, value)
           FROM scoop.return_value
           WHERE scoop.run_id(cooperation_lineage) = $1 AND handler_name = $2
       ) END AS outputs,
       (SELECT began_at FROM begun) AS began_at, (SELECT suspensions FROM begun) AS former,
       (SELECT number FROM begun) AS execution,
       (SELECT m.payload FROM scoop.message m WHERE m.id = (SELECT message_id FROM begun)) AS payload
FROM newest n CROSS JOIN bounds b
UNION ALL
SELECT r.step, NULL, r.handling, r.definition, r.by_strategy, CASE WHEN r.type = 'EMITTED' THEN r.message_id END, r.created_at,
       r.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM recorded r
ORDER BY created_at DESC NULLS FIRST
