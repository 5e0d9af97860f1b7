-- Checks whether this worker has recorded an event of this type for the run.
-- Locks: nothing.
-- $1 the run's id, $2 the worker's identifier in events, $3 the type
SELECT EXISTS (
    SELECT FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      AND e.coroutine_identifier = $2 AND e.type = $3
)
