-- What became of the messages that this run launched: in its newest window, the one before its
-- newest SUSPENDED, or ever? What only waits or cleans up ends no window: it belongs to the step
-- that the user has written. One row for each handler, whether or not it has begun. On the way back
-- the newest window has those that were told to roll back as well.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 only the newest window, $4 the name of the replies wanted,
-- $5 the steps that only wait or clean up
WITH suspended AS (
    SELECT e.created_at, e.step <> ALL ($5::text[]) AS ends_window
    FROM scoop.message_event e
    WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $2
    ORDER BY e.created_at DESC
    LIMIT 2 + cardinality($5::text[])
),
launched AS (
    SELECT e.message_id, e.created_at, e.type = 'EMITTED' AS is_new
    FROM scoop.message_event e
    WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1
      AND (e.type = 'EMITTED' OR e.type = 'ROLLBACK_EMITTED' AND $3) AND e.coroutine_name = $2
      AND (NOT $3 OR e.created_at > coalesce(
          (SELECT max(created_at) FROM suspended
           WHERE created_at < (SELECT max(created_at) FROM suspended WHERE ends_window)), '-infinity'))
)
SELECT l.message_id, m.topic, handled.handler, seen.cooperation_lineage AS lineage,
       ended.type::text AS ended, ended.exception, turned.exception AS cause, reply.value AS reply
FROM launched l
JOIN scoop.message m ON m.id = l.message_id
CROSS JOIN LATERAL (
    SELECT h.handler FROM scoop.handler h
    WHERE l.is_new AND h.topic = m.topic AND h.since <= l.created_at AND coalesce(h.until, 'infinity') > l.created_at
  UNION
    SELECT s.coroutine_name FROM scoop.message_event s WHERE s.type = 'SEEN' AND s.message_id = l.message_id
) handled
LEFT JOIN scoop.message_event seen
    ON seen.type = 'SEEN' AND seen.message_id = l.message_id AND seen.coroutine_name = handled.handler
LEFT JOIN LATERAL (
    SELECT e.type, e.exception
    FROM scoop.message_event e
    WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)]
            = seen.cooperation_lineage[cardinality(seen.cooperation_lineage)]
      AND e.message_id = l.message_id
      AND e.type IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED')
    ORDER BY e.created_at DESC
    LIMIT 1
) ended ON true
LEFT JOIN scoop.message_event turned
    ON turned.type = 'ROLLING_BACK' AND turned.message_id = l.message_id
   AND turned.coroutine_name = handled.handler
LEFT JOIN scoop.return_value reply
    ON reply.cooperation_lineage = seen.cooperation_lineage
   AND reply.handler_name = handled.handler AND reply.variable_name = $4
ORDER BY l.created_at, handled.handler
