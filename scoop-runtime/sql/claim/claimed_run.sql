-- What a worker reads of a run `c`: the last two are of one that it has claimed.
c.root, c.id, c.lineage, c.message_id, c.topic, c.handler, c.epoch, c.rolling_back, c.rollback_requested,
       c.step, (c.suspended).jump, (c.suspended).definition, c.reserved_for, (c.suspended).iteration,
       (c.suspended).handler_iteration, (c.suspended).wait, c.suspensions, c.completions,
       c.outputs, c.failure,
       coalesce((c.tries).attempts, 0) AS attempts, coalesce((c.tries).retries, 0) AS retries, (c.tries).tried_under, c.reason,
       c.context, c.replied, c.rollback_failure IS NOT NULL AS has_failed_before,
       c.parent, c.began_at,
       coalesce((c.newest_execution).number, 0) AS execution, (c.newest_execution).since AS execution_since, (c.newest_execution).message_id AS payload_of,
       c.signalled_by,
       c.rollback_since IS NOT NULL AS undoing,
       scoop.has_to_give_up(c.giving_up, c.give_up_at, clock_timestamp()) AS overdue,
       CASE WHEN c.state = 'running' THEN (
           SELECT m.payload FROM scoop.message m WHERE m.id = coalesce((c.newest_execution).message_id, c.message_id)
       ) END AS payload,
       CASE WHEN c.state = 'running' AND c.epoch > c.unclaimed_epoch + 1 AND (
           SELECT child.id FROM scoop.run child
           WHERE child.root = c.root AND child.parent = c.id AND child.state IN ('ended', 'failed') LIMIT 1
       ) IS NOT NULL THEN scoop.failed_children(c.root, c.id) END AS failed_children
