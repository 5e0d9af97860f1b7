-- Counts how often this step of the run ended in a row until then, without its child failure handler. Reads as many
-- events.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 until when, $4 the names that the step has or had, $5 after when, null
-- for all
SELECT count(*)
FROM scoop.message_event e
WHERE scoop.run_id(e.cooperation_lineage) = $1
  AND e.type = 'SUSPENDED' AND e.coroutine_name = $2 AND e.child_failure_handler_iteration IS NULL
  AND e.created_at <= $3 AND e.created_at > coalesce($5::timestamptz, '-infinity')
  AND e.created_at > coalesce((
      SELECT other.created_at
      FROM scoop.message_event other
      WHERE scoop.run_id(other.cooperation_lineage) = $1
        AND other.type = 'SUSPENDED' AND other.coroutine_name = $2 AND other.child_failure_handler_iteration IS NULL
        AND other.created_at <= $3 AND other.created_at > coalesce($5::timestamptz, '-infinity') AND other.step <> ALL ($4::text[])
      ORDER BY other.created_at DESC
      LIMIT 1
  ), '-infinity')
