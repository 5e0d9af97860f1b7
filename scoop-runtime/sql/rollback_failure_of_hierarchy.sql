-- Lists the failed rollbacks of a hierarchy that no operator has settled since, ancestors first: how far each is, and
-- whether the run is back in the working set. If a rollback failed again, the part of the last failure counts.
-- Locks: nothing.
-- $1 root, $2 the source named in the events of operators
SELECT failed.cooperation_lineage AS lineage, failed.message_id, failed.coroutine_name AS handler,
       failed.created_at AS failed_at,
       coalesce(again.step, failed.step) AS part,
       CASE WHEN again.run IS NULL THEN failed.child_failure_handler_iteration ELSE again.handler_iteration END
           AS handling,
       r.state::text AS state, coalesce(r.awaits_operator, false) AS awaits_operator,
       suspended.created_at AS suspended_at,
       CASE WHEN suspended.created_at > turned.created_at THEN suspended.step END AS suspended_part,
       CASE WHEN suspended.created_at > turned.created_at
            THEN suspended.child_failure_handler_iteration END AS suspended_handling,
       newest.context,
       greatest(newest.created_at, again.failed_at, r.last_event_at) AS newest_at,
       -- it gave up, and some runs whose rollback the newest part requested, or that handle a message of it, had not
       -- begun and will not; an operator that skipped the part has accepted that
       coalesce(again.exception, failed.exception) ->> 'type' LIKE '%GaveUpException'
       AND suspended.created_at > turned.created_at AND suspended.coroutine_identifier <> $2 AND EXISTS (
           SELECT FROM scoop.message_event sent
           WHERE scoop.run_id(sent.cooperation_lineage) = scoop.run_id(failed.cooperation_lineage)
             -- as a text: otherwise the planner may read the index of all such events
             AND sent.type::text IN ('EMITTED', 'ROLLBACK_EMITTED')
             AND sent.coroutine_name = failed.coroutine_name AND sent.step = suspended.step
             AND CASE sent.type
                 WHEN 'EMITTED' THEN EXISTS (
                     SELECT FROM scoop.message launched
                     JOIN scoop.handler h ON h.topic = launched.topic AND h.since <= sent.created_at
                     WHERE launched.id = sent.message_id AND h.dropped_at IS NULL
                       AND (h.retired_at IS NULL OR h.retired_at > sent.created_at)
                       AND NOT EXISTS (
                           SELECT FROM scoop.message_event seen
                           WHERE seen.type = 'SEEN' AND seen.coroutine_name = h.handler
                             AND seen.message_id = sent.message_id))
                 ELSE EXISTS (
                     SELECT FROM scoop.message_event seen
                     WHERE seen.type = 'SEEN' AND seen.message_id = sent.message_id
                       AND NOT EXISTS (
                           SELECT FROM scoop.message_event back
                           WHERE back.type = 'ROLLING_BACK' AND back.coroutine_name = seen.coroutine_name
                             AND back.message_id = seen.message_id))
                 END
       ) AS leaves_behind,
       -- launched by the run above during its rollback; computed once for each run above, since that reads all its
       -- events
       failed.message_id IN (
           SELECT launch.message_id
           FROM (
               SELECT scoop.run_id(emitted.cooperation_lineage) AS run, emitted.coroutine_name,
                      array_agg(emitted.message_id) AS messages, array_agg(emitted.created_at) AS times
               FROM scoop.rollback_failure child
               JOIN scoop.message_event emitted
                   ON emitted.type = 'EMITTED' AND emitted.message_id = child.message_id
               WHERE child.root = $1
               GROUP BY 1, 2
           ) above
           CROSS JOIN LATERAL (
               SELECT min(e.created_at) AS created_at
               FROM scoop.message_event e
               WHERE scoop.run_id(e.cooperation_lineage) = above.run
                 -- as a text: otherwise the planner may read the index of all such events
                 AND e.type::text = 'ROLLING_BACK' AND e.coroutine_name = above.coroutine_name
           ) back
           CROSS JOIN LATERAL unnest(above.messages, above.times) launch (message_id, emitted_at)
           WHERE launch.emitted_at > back.created_at
       ) AS compensates
FROM scoop.rollback_failure unsettled
CROSS JOIN LATERAL (
    SELECT e.* FROM scoop.message_event e
    WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = unsettled.root
      AND scoop.run_id(e.cooperation_lineage) = unsettled.run
    OFFSET 0
) failed
JOIN scoop.message_event turned
    ON turned.type = 'ROLLING_BACK' AND turned.coroutine_name = failed.coroutine_name
   AND turned.message_id = failed.message_id
LEFT JOIN LATERAL (
    SELECT f.*
    FROM scoop.repeated_failure f
    WHERE f.run = scoop.run_id(failed.cooperation_lineage)
    ORDER BY f.failed_at DESC
    LIMIT 1
) again ON true
LEFT JOIN LATERAL (
    SELECT e.created_at, e.step, e.child_failure_handler_iteration, e.coroutine_identifier
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(failed.cooperation_lineage)
      AND e.type = 'SUSPENDED'
    ORDER BY e.created_at DESC
    LIMIT 1
) suspended ON true
CROSS JOIN LATERAL (
    SELECT e.created_at, e.context
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(failed.cooperation_lineage)
      AND e.message_id = failed.message_id AND e.coroutine_name = failed.coroutine_name
    ORDER BY e.created_at DESC
    LIMIT 1
) newest
LEFT JOIN scoop.run r
    ON r.root = $1 AND r.id = scoop.run_id(failed.cooperation_lineage)
WHERE unsettled.root = $1
ORDER BY cardinality(failed.cooperation_lineage), failed.created_at
