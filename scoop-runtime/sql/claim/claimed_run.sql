-- What a worker reads of a run `c`: the last two are of one that it has claimed.
c.root, c.id, c.lineage, c.message_id, c.topic, c.handler, c.epoch, c.rolling_back, c.rollback_requested,
       c.step, c.jump, c.definition, c.reserved_for, c.iteration, c.handler_iteration, c.suspensions, c.completions,
       c.outputs, c.failure,
       c.attempts, c.retries, c.tried_under, c.context, c.replied, c.rollback_failure IS NOT NULL AS has_failed_before,
       c.parent, c.began_at,
       c.execution, c.execution_since, c.payload_of, c.signalled_by,
       c.rollback_since IS NOT NULL AS undoing,
       scoop.has_to_give_up(c.giving_up, c.give_up_at, clock_timestamp()) AS overdue,
       CASE WHEN c.state = 'running' THEN (
           SELECT m.payload FROM scoop.message m WHERE m.id = coalesce(c.payload_of, c.message_id)
       ) END AS payload,
       CASE WHEN c.state = 'running' AND c.epoch > c.unclaimed_epoch + 1 AND (
           SELECT child.id FROM scoop.run child
           WHERE child.root = c.root AND child.parent = c.id AND child.state IN ('ended', 'failed') LIMIT 1
       ) IS NOT NULL THEN scoop.failed_children(c.root, c.id) END AS failed_children
