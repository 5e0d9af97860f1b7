-- Counts how often each step of a run ended, and how often apart from its child failure handler. Reads the whole way
-- forward of an execution. Names an event whose time no program knows, if there is one.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 until when, $4 after when, null for all
SELECT e.step, count(*) AS instances, count(*) FILTER (WHERE e.child_failure_handler_iteration IS NULL) AS runs,
       min(e.id::text) FILTER (WHERE NOT e.created_at BETWEEN '0001-01-01Z' AND '9999-12-31Z') AS unfit
FROM scoop.message_event e
WHERE scoop.run_id(e.cooperation_lineage) = $1
  AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND e.created_at <= $3 AND e.created_at > coalesce($4::timestamptz, '-infinity')
GROUP BY e.step
