-- Returns why a run has to give up: the requests to cancel it or an ancestor, and the context of its deadlines. No row
-- if it need not, or if the worker does not hold it.
-- Locks: nothing.
-- $1 root, $2 id, $3 epoch
SELECT r.context, r.rollback_since, clock_timestamp() AS now,
       CASE WHEN r.rollback_since IS NULL THEN (
           SELECT jsonb_agg(e.exception ORDER BY e.created_at)
           FROM scoop.message_event e
           WHERE e.type = 'CANCELLATION_REQUESTED'
             AND e.cooperation_lineage[1] = r.root
             AND scoop.run_id(e.cooperation_lineage) = ANY (r.lineage)
       ) END AS requests
FROM scoop.run r
WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
  AND scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp())
