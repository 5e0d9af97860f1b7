-- How often did each step of this run end, and how often apart from its child failure handler? Reads its whole way
-- forward.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 until when
SELECT e.step, count(*) AS instances, count(*) FILTER (WHERE e.child_failure_handler_iteration IS NULL) AS runs
FROM scoop.message_event e
WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1
  AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND e.created_at <= $3
GROUP BY e.step
