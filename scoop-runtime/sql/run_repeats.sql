-- Did somebody want the newest part of this rollback to run again, and it has not yet?
-- Locks: nothing.
-- $1 the run's id
SELECT EXISTS (
    SELECT FROM scoop.intervention i
    WHERE i.run = $1 AND i.kind = 'retry' AND i.repeats
      AND i.requested_at > (
          SELECT max(e.created_at) FROM scoop.message_event e
          WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1 AND e.type = 'SUSPENDED')
)
