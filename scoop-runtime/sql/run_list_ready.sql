-- Lists the ready runs of these queues in the order of their queue times, without suspects.
-- Locks: nothing.
-- $1 topics, $2 handlers and $3 lanes of the queues, $4 how many, $5 for each queue whether its new runs are paused
SELECT r.root, r.id
FROM unnest($1::text[], $2::text[], $3::int[], $5::boolean[]) AS own (topic, handler, lane, begun_only)
CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
CROSS JOIN LATERAL (
    SELECT r.root, r.id, r.ready_at
    FROM scoop.run r
    WHERE r.state = 'ready' AND r.handler = own.handler AND r.topic = own.topic AND r.reserved_for = own.lane
      AND scoop.priority_of(r.context) = level.priority
      AND r.ready_at <= (SELECT clock_timestamp())
      AND NOT scoop.is_suspect(r.tries)
      AND (NOT own.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
    ORDER BY r.ready_at
    LIMIT $4
) r
ORDER BY scoop.queue_time(r.ready_at, level.priority)
LIMIT $4
