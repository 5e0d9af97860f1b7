-- What did this run do? Its suspensions in order, each with what it emitted; with the first, what the
-- steps returned, by name.
-- Locks: nothing.
-- $1 the run's lineage, $2 its id, $3 its handler
WITH recorded AS (
    SELECT e.type, e.message_id, e.step, e.jump, e.child_failure_handler_iteration, e.created_at,
           count(*) FILTER (WHERE e.type = 'SUSPENDED') OVER (
               ORDER BY e.created_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS suspended_before
    FROM scoop.message_event e
    WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $2
      AND e.type IN ('SUSPENDED', 'EMITTED') AND e.coroutine_name = $3
), emitted AS (
    SELECT e.suspended_before, array_agg(e.message_id ORDER BY e.created_at) AS messages
    FROM recorded e
    WHERE e.type = 'EMITTED'
    GROUP BY e.suspended_before
)
SELECT s.step, s.jump, s.child_failure_handler_iteration AS handler_iteration,
       coalesce(e.messages, '{}') AS emitted,
       CASE WHEN s.suspended_before = 0 THEN (
           SELECT jsonb_object_agg(variable_name, value)
           FROM scoop.return_value
           WHERE cooperation_lineage = $1 AND handler_name = $3
       ) END AS outputs
FROM recorded s
LEFT JOIN emitted e USING (suspended_before)
WHERE s.type = 'SUSPENDED'
ORDER BY s.created_at
