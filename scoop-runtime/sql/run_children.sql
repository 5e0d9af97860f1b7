-- Outcomes of messages for each of their handlers: of given messages, or of those that a run launched in its last
-- step or in its newest execution? One row for each handler, whether or not it has begun.
-- The last step began after the SUSPENDED before its own. Child failure handlers, waits and cleanups belong to the
-- step before them. In a rollback, messages whose rollback was requested count as launched.
-- A reply counts only if its run has committed, and no rollback of it was requested since.
-- Locks: nothing.
-- $1 the messages, or null for those of a run, $2 its id, $3 its handler, $4 only its last step, $5 the steps that
-- only wait or clean up, $6 the topic or null for any, $7 whether to return replies, in place of the payloads, $8 when
-- its newest execution began, null for the first
WITH last_step AS (
    SELECT e.created_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $2
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $3
      AND e.child_failure_handler_iteration IS NULL AND e.step <> ALL ($5::text[])
    ORDER BY e.created_at DESC
    LIMIT 1
),
the_one_before AS (
    SELECT e.created_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $2
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $3
      AND e.created_at < (SELECT created_at FROM last_step)
    ORDER BY e.created_at DESC
    LIMIT 1
),
-- the failures of what was launched before the newest SUSPENDED but one have been handled
handled AS (
    SELECT e.created_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $2
      AND e.type = 'SUSPENDED' AND e.coroutine_name = $3
    ORDER BY e.created_at DESC
    OFFSET 1
    LIMIT 1
),
launched AS (
    SELECT e.message_id, e.created_at, e.type = 'EMITTED' AS is_new,
           e.created_at < (SELECT created_at FROM handled) AS handled
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $2
      -- as a text: otherwise the planner may read the index of all such events
      AND (e.type::text = 'EMITTED' OR e.type::text = 'ROLLBACK_EMITTED' AND $4) AND e.coroutine_name = $3
      AND e.created_at > CASE WHEN $4 THEN coalesce((SELECT created_at FROM the_one_before), '-infinity')
                              ELSE coalesce($8::timestamptz, '-infinity') END
  UNION ALL
    SELECT e.message_id, e.created_at, true, true
    FROM unnest($1::uuid[]) given
    CROSS JOIN LATERAL (
        SELECT e.message_id, e.created_at FROM scoop.message_event e
        WHERE e.type = 'EMITTED' AND e.message_id = given OFFSET 0
    ) e
)
SELECT l.message_id, m.topic, listed.handler, l.handled, seen.cooperation_lineage AS lineage,
       CASE WHEN stands.ended IS NOT NULL OR seen.cooperation_lineage IS NULL
                 OR scoop.is_in_run(seen.cooperation_lineage[1], scoop.run_id(seen.cooperation_lineage)) THEN stands.ended END AS ended,
       stands.exception, stands.cause, m.payload, reply.names, reply.values
FROM launched l
CROSS JOIN LATERAL (
    SELECT m.topic, CASE WHEN NOT $7 THEN m.payload END AS payload
    FROM scoop.message m
    WHERE m.id = l.message_id AND ($6::text IS NULL OR m.topic = $6)
    OFFSET 0
) m
CROSS JOIN LATERAL (
    SELECT h.handler FROM scoop.handler h
    WHERE l.is_new AND h.topic = m.topic AND h.since <= l.created_at AND coalesce(h.retired_at,
        'infinity') > l.created_at
  UNION
    SELECT s.coroutine_name FROM scoop.message_event s WHERE s.type = 'SEEN' AND s.message_id = l.message_id
) listed
LEFT JOIN LATERAL (
    SELECT e.cooperation_lineage FROM scoop.message_event e
    WHERE e.type = 'SEEN' AND e.coroutine_name = listed.handler AND e.message_id = l.message_id
    OFFSET 0
) seen ON true
LEFT JOIN LATERAL (
    SELECT upper(r.outcome::text) AS ended, NULL::jsonb AS exception, r.failure AS cause FROM scoop.ended_run r
    WHERE r.root = seen.cooperation_lineage[1] AND r.id = scoop.run_id(seen.cooperation_lineage)
  UNION ALL
    -- also while a repair is under way
    SELECT CASE WHEN r.rollback_failure IS NOT NULL THEN 'ROLLBACK_FAILED' END, r.rollback_failure, r.failure FROM scoop.run r
    WHERE r.root = seen.cooperation_lineage[1] AND r.id = scoop.run_id(seen.cooperation_lineage)
    LIMIT 1
) stands ON true
LEFT JOIN LATERAL (
    SELECT array_agg(r.variable_name::text) AS names, array_agg(r.value) AS values
    FROM scoop.return_value r
    WHERE $7 AND stands.ended = 'COMMITTED'
      AND scoop.run_id(r.cooperation_lineage) = scoop.run_id(seen.cooperation_lineage)
      AND r.handler_name = listed.handler AND r.variable_name NOT LIKE 'Output of %'
) reply ON true
ORDER BY l.created_at, l.message_id, listed.handler
