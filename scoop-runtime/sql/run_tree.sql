-- Which runs does a hierarchy have, finished or not, and how far is each? Goes down from the root
-- message through what each run emitted. Pending runs are only in the working set. Also
-- the messages that no handler was listed for when they were emitted, as rows without a handler, with the lineage of
-- the emitter; `redelivered_as` is the hierarchy that handles one in the end.
-- Of a large hierarchy a part: runs above before those below, as far as is asked. Of a run that went on anew only the
-- newest execution, and what that launched.
-- Locks: nothing.
-- $1 the root message, $2 down to which depth, that of its own runs being 1, and $3 how many runs at most, one more if
-- there are more; null for all
WITH RECURSIVE begun AS (
    SELECT seen.cooperation_lineage AS lineage, seen.message_id, seen.coroutine_name AS handler
    FROM scoop.message_event seen
    WHERE seen.type = 'SEEN' AND seen.message_id = $1
  UNION ALL
    SELECT child.cooperation_lineage, child.message_id, child.coroutine_name
    FROM begun
    LEFT JOIN LATERAL (
        SELECT x.began_at FROM scoop.execution x WHERE x.run = scoop.run_id(begun.lineage)
        ORDER BY x.number DESC
        LIMIT 1
    ) execution ON true
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(begun.lineage)
          -- as a text: otherwise the planner reads the index of all EMITTED for each run
          AND e.type::text = 'EMITTED' AND e.coroutine_name = begun.handler
          AND e.created_at > coalesce(execution.began_at, '-infinity')
        OFFSET 0
    ) emitted
    CROSS JOIN LATERAL (
        SELECT seen.cooperation_lineage, seen.message_id, seen.coroutine_name FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = emitted.message_id
        OFFSET 0
    ) child
    WHERE cardinality(begun.lineage) <= $2 IS NOT FALSE
)
-- rows of another program may say that a message led to itself
CYCLE message_id, handler SET repeats USING path,
root AS (
    SELECT cooperation_lineage[1] AS id
    FROM scoop.message_event
    WHERE type = 'EMITTED' AND message_id = $1
),
waiting_to_begin AS (
    -- a row whose lineage is not its own is shown by its keys
    SELECT CASE WHEN r.lineage[1] = r.root AND scoop.run_id(r.lineage) = r.id
               AND array_position(r.lineage, NULL) IS NULL THEN r.lineage ELSE ARRAY[r.root, r.id] END AS lineage,
           r.message_id, r.handler
    FROM scoop.run r
    JOIN root ON r.root = root.id
    WHERE r.epoch = 0 AND NOT r.rollback_requested
),
listed AS MATERIALIZED (
    SELECT lineage, message_id, handler FROM begun WHERE NOT repeats
  UNION ALL
    SELECT * FROM waiting_to_begin WHERE cardinality(lineage) <= $2 + 1 IS NOT FALSE
    LIMIT $3::bigint + 1
),
shown AS MATERIALIZED (
    SELECT listed.*, execution.number AS execution, execution.began_at
    FROM listed
    LEFT JOIN LATERAL (
        SELECT x.number, x.began_at FROM scoop.execution x WHERE x.run = scoop.run_id(listed.lineage)
        ORDER BY x.number DESC
        LIMIT 1
    ) execution ON true
),
emitted AS (
    SELECT e.cooperation_lineage AS lineage, e.message_id, e.created_at
    FROM scoop.message_event e
    WHERE e.type = 'EMITTED' AND e.message_id = $1
  UNION ALL
    SELECT e.cooperation_lineage, e.message_id, e.created_at
    FROM shown
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.message_id, e.created_at FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(shown.lineage)
          AND e.type::text = 'EMITTED' AND e.coroutine_name = shown.handler
          AND e.created_at > coalesce(shown.began_at, '-infinity')
        OFFSET 0
    ) e
),
unhandled AS (
    SELECT e.lineage, e.message_id, m.topic, e.created_at, d.root AS redelivered_as
    FROM emitted e
    CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
    LEFT JOIN LATERAL (
        SELECT d.root FROM scoop.redelivery d WHERE d.message_id = e.message_id OFFSET 0
    ) d ON true
    WHERE (
        SELECT seen.id FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = e.message_id LIMIT 1
    ) IS NULL
      AND e.message_id NOT IN (SELECT message_id FROM waiting_to_begin)
      AND NOT EXISTS (
        SELECT FROM scoop.handler h
        WHERE h.topic = m.topic AND h.since <= e.created_at AND coalesce(h.retired_at, 'infinity') > e.created_at
    )
)
SELECT n.lineage, n.message_id, n.handler, m.topic,
       r.state::text AS state, r.attempts + r.retries AS attempts, left(r.reason, 10000) AS reason, r.rolling_back, r.giving_up, r.owner,
       NOT EXISTS (
           SELECT FROM scoop.worker w, unnest(w.topics, w.handlers) AS own (topic, handler)
           WHERE own.topic = r.topic AND own.handler = r.handler
       ) AS is_abandoned,
       coalesce(r.parked_since, r.ready_at) AS ready_at, r.signal, r.signal_key, r.give_up_at,
       -- looked up once, by index: mostly there are no pauses
       CASE WHEN r.state = 'ready' AND EXISTS (SELECT FROM scoop.pause p WHERE p.kind >= '') THEN
           scoop.pauses_of(r.handler, r.topic) END AS pauses,
       clock_timestamp() AS read_at,
       events.list AS events, NULL::timestamptz AS launched_at, NULL::uuid AS redelivered_as,
       CASE WHEN cardinality(n.lineage) > $2 THEN (
           SELECT e.id FROM scoop.message_event e
           WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(n.lineage)
             AND e.type::text = 'EMITTED' AND e.coroutine_name = n.handler
             AND e.created_at > coalesce(n.began_at, '-infinity')
           LIMIT 1
       ) IS NOT NULL ELSE false END AS has_more,
       n.execution,
       CASE WHEN n.began_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN n.began_at END AS began_at
FROM shown n
-- one row at a time: the planner takes a tree for large if one run has most of the events, and would read all messages
CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = n.message_id OFFSET 0) m
LEFT JOIN LATERAL (
    SELECT r.* FROM scoop.run r WHERE r.root = n.lineage[1] AND r.id = scoop.run_id(n.lineage) OFFSET 0
) r ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(
        jsonb_build_object(
            'type', e.type, 'step', e.step, 'worker', e.coroutine_identifier,
            'handling', e.child_failure_handler_iteration, 'exception', scoop.shown_failure(e.exception), 'wait', e.wait,
            'anew', e.created_at = n.began_at,
            'micros', CASE WHEN e.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z'
                           THEN (extract(epoch FROM e.created_at) * 1000000)::bigint END)
        ORDER BY e.created_at) AS list
    FROM (
        SELECT own.* FROM scoop.message_event own
        WHERE scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
          AND own.created_at >= coalesce(n.began_at, '-infinity')
      UNION ALL
        (SELECT seen.* FROM scoop.message_event seen
         WHERE seen.type = 'SEEN' AND seen.message_id = n.message_id AND seen.coroutine_name = n.handler
           AND seen.created_at < n.began_at
         LIMIT 1)
    ) e
    WHERE e.message_id = n.message_id AND e.coroutine_name = n.handler
) events ON true
UNION ALL
SELECT u.lineage, u.message_id, NULL, u.topic, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       -- a time outside the years 1 to 9999 is none
       CASE WHEN u.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN u.created_at END,
       u.redelivered_as, NULL, NULL, NULL
FROM unhandled u
ORDER BY lineage, launched_at NULLS FIRST
