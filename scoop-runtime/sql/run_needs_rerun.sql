-- Checks whether an operator has requested the newest part of this rollback again, and it has not run since.
-- Locks: nothing.
-- $1 the run's id
SELECT EXISTS (
    SELECT FROM scoop.intervention i
    WHERE i.run = $1 AND i.kind = 'retry' AND i.reruns_part
      AND i.requested_at > (
          SELECT max(e.created_at) FROM scoop.message_event e
          WHERE scoop.run_id(e.cooperation_lineage) = $1 AND e.type = 'SUSPENDED')
)
