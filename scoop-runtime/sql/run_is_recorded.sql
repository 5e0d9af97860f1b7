-- Checks whether this worker has recorded an event of this type for the run.
-- Locks: nothing.
-- $1 the run's id, $2 the worker's identifier in events, $3 the type
SELECT EXISTS (
    SELECT FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      AND e.coroutine_identifier = $2 AND e.type = $3
      -- a run does not continue as new after such an event
      AND e.created_at > coalesce((
          SELECT x.began_at FROM scoop.execution x WHERE x.run = $1 ORDER BY x.number DESC LIMIT 1
      ), '-infinity')
)
