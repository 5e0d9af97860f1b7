-- Which runs does a hierarchy have, finished or not, and how far is each? Goes down from the root
-- message through what each run emitted. Pending runs are only in the working set. Also
-- the messages that no handler was listed for when they were emitted, as rows without a handler, with the lineage of
-- the emitter; `redelivered_as` is the hierarchy that handles one in the end.
-- Of a large hierarchy a part: runs above before those below, as far as is asked. Of a run that continued as new only the
-- newest execution, and what that launched.
-- The failures of all these events are read up to a number of bytes: first the newest of each kind of each run, from which the
-- state of the run follows, then all others from the newest one on. Failures beyond that are not read, nor is a wait that is
-- larger, or has more levels, than programs write.
-- Locks: nothing.
-- $1 the root message, $2 down to which depth, that of its own runs being 1, and $3 how many runs at most, one more if
-- there are more; null for all. $4 one run that handles the message, for itself and its children only; null for all.
-- $5 how many events from the beginning of each run and how many from its end, and of those between them only the ones
-- that a run has once; of the children of the run $4 one and one; null for all. $6 up to which number the others between
-- them are counted. $7 how many messages without a handler at most, one more if there are more; null for all. $8 how many launched
-- messages of each run are looked at, for their runs and for that, and $9 how many of all runs for that; null for all.
-- $10 how many bytes of failures at most

-- 1. The runs: `begun` in the record, or `waiting_to_begin` in the working set. Both are `listed`, and `shown` with their
-- newest executions.
WITH RECURSIVE begun AS (
    SELECT seen.cooperation_lineage AS lineage, seen.message_id, seen.coroutine_name AS handler
    FROM scoop.message_event seen
    WHERE seen.type = 'SEEN' AND seen.message_id = $1
      AND (scoop.run_id(seen.cooperation_lineage) = $4::uuid) IS NOT FALSE
    -- without duplicates: rows of another program may say that a message led to itself, or to one message in many ways
  UNION
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
        ORDER BY e.created_at
        LIMIT $8::bigint
    ) emitted
    CROSS JOIN LATERAL (
        SELECT seen.cooperation_lineage, seen.message_id, seen.coroutine_name FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = emitted.message_id
        OFFSET 0
    ) child
    WHERE cardinality(begun.lineage) <= $2 IS NOT FALSE AND (scoop.run_id(begun.lineage) = $4::uuid) IS NOT FALSE
),
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
    FROM root
    CROSS JOIN LATERAL (
        SELECT r.* FROM scoop.run r WHERE r.root = root.id AND $4::uuid IS NULL
      UNION ALL
        SELECT r.* FROM scoop.run r WHERE r.root = root.id AND r.id = $4
      UNION ALL
        SELECT r.* FROM scoop.run r WHERE r.root = root.id AND r.parent = $4
    ) r
    WHERE r.epoch = 0 AND NOT r.rollback_requested
),
listed AS MATERIALIZED (
    SELECT lineage, message_id, handler FROM begun
  UNION ALL
    SELECT * FROM waiting_to_begin WHERE cardinality(lineage) <= $2 + 1 IS NOT FALSE
    LIMIT $3::bigint + 1
),
shown AS MATERIALIZED (
    SELECT row_number() OVER () AS nth, listed.*, execution.number AS execution, execution.began_at
    FROM listed
    LEFT JOIN LATERAL (
        SELECT x.number, x.began_at FROM scoop.execution x WHERE x.run = scoop.run_id(listed.lineage)
        ORDER BY x.number DESC
        LIMIT 1
    ) execution ON true
),

-- 2. The messages without a handler: of the `emitted` ones, those that are `unhandled`.
emitted AS MATERIALIZED (
    SELECT e.cooperation_lineage AS lineage, e.message_id, e.created_at, 1 AS nth
    FROM scoop.message_event e
    WHERE e.type = 'EMITTED' AND e.message_id = $1
  UNION ALL
    SELECT e.cooperation_lineage, e.message_id, e.created_at, e.nth
    FROM shown
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.message_id, e.created_at, row_number() OVER (ORDER BY e.created_at) AS nth
        FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(shown.lineage)
          AND e.type::text = 'EMITTED' AND e.coroutine_name = shown.handler
          AND e.created_at > coalesce(shown.began_at, '-infinity')
        ORDER BY e.created_at
        LIMIT $8::bigint + 1
    ) e
    WHERE (scoop.run_id(shown.lineage) = $4::uuid) IS NOT FALSE
    LIMIT $9::bigint + 1
),
-- some launched messages are not looked at
more_emitted AS (
    SELECT EXISTS (SELECT FROM emitted e WHERE e.nth > $8::bigint)
           OR (SELECT count(*) > $9::bigint FROM emitted) IS TRUE AS is_so
),
unhandled AS (
    SELECT e.lineage, e.message_id, m.topic, e.created_at, d.root AS redelivered_as
    FROM emitted e
    CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
    LEFT JOIN LATERAL (
        SELECT d.root FROM scoop.redelivery d WHERE d.message_id = e.message_id OFFSET 0
    ) d ON true
    WHERE (e.nth <= $8::bigint) IS NOT FALSE
      AND (
        SELECT seen.id FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = e.message_id LIMIT 1
    ) IS NULL
      -- all waiting runs are read only if a message without a handler is found
      AND CASE WHEN EXISTS (
        SELECT FROM scoop.handler h
        WHERE h.topic = m.topic AND h.since <= e.created_at AND coalesce(h.retired_at, 'infinity') > e.created_at
    ) THEN false ELSE e.message_id NOT IN (SELECT message_id FROM waiting_to_begin) END
    LIMIT $7::bigint + 1
),

-- 3. The events of each run that are read, `recorded`; and a row of no type, with the run and the number of the others.
recorded AS (
    SELECT n.nth, n.began_at, e.*
    FROM shown n
    CROSS JOIN LATERAL (
        WITH first AS MATERIALIZED (
            SELECT own.created_at, own.type, own.step, own.coroutine_identifier, own.child_failure_handler_iteration,
                   own.exception, own.wait, own.definition
            FROM scoop.message_event own
            WHERE scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
              AND own.created_at >= coalesce(n.began_at, '-infinity')
              AND own.message_id = n.message_id AND own.coroutine_name = n.handler
            ORDER BY own.created_at
            LIMIT CASE WHEN scoop.run_id(n.lineage) <> $4::uuid AND $5::int > 1 THEN 1 ELSE $5::int END
        ),
        last AS MATERIALIZED (
            SELECT own.created_at, own.type, own.step, own.coroutine_identifier, own.child_failure_handler_iteration,
                   own.exception, own.wait, own.definition
            FROM scoop.message_event own
            WHERE $5::int IS NOT NULL AND scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
              AND own.created_at > (SELECT max(created_at) FROM first)
              AND own.message_id = n.message_id AND own.coroutine_name = n.handler
            ORDER BY own.created_at DESC
            LIMIT CASE WHEN scoop.run_id(n.lineage) <> $4::uuid AND $5::int > 1 THEN 1 ELSE $5::int END
        ),
        bounds AS (
            SELECT (SELECT max(created_at) FROM first) AS after, (SELECT min(created_at) FROM last) AS before
        ),
        left_out AS (
            SELECT (SELECT count(*) FROM (
                        SELECT FROM bounds
                        CROSS JOIN LATERAL (
                            SELECT FROM scoop.message_event own
                            WHERE scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
                              AND own.created_at > bounds.after AND own.created_at < bounds.before
                              AND own.message_id = n.message_id AND own.coroutine_name = n.handler
                              AND own.type::text NOT IN ('COMMITTED', 'ROLLING_BACK')
                            OFFSET 0
                        ) own
                        LIMIT $6::bigint
                    ) between_them) AS own
        )
        SELECT e.created_at, e.type, e.step, e.coroutine_identifier AS worker, e.child_failure_handler_iteration AS handling,
               e.exception, e.wait, e.definition,
               -- what is between two events that are shown one after the other is left out
               CASE WHEN left_out.own > 0 AND e.created_at > bounds.after AND e.previous_at < bounds.before THEN (
                   SELECT own.created_at FROM scoop.message_event own
                   WHERE scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
                     AND own.created_at > greatest(e.previous_at, n.began_at) AND own.created_at < e.created_at
                     AND own.message_id = n.message_id AND own.coroutine_name = n.handler
                   LIMIT 1
               ) IS NOT NULL ELSE false END AS follows_gap,
               NULL::uuid[] AS lineage, NULL::uuid AS message_id, NULL::text AS handler, NULL::int AS execution,
               NULL::bigint AS left_out
        FROM left_out
        CROSS JOIN bounds
        CROSS JOIN LATERAL (
            SELECT picked.*, lag(picked.created_at) OVER (ORDER BY picked.created_at) AS previous_at
            FROM (
                SELECT first.* FROM first
              UNION ALL
                (SELECT seen.created_at, seen.type, seen.step, seen.coroutine_identifier, seen.child_failure_handler_iteration,
                        seen.exception, seen.wait, seen.definition
                 FROM scoop.message_event seen
                 WHERE seen.type = 'SEEN' AND seen.message_id = n.message_id AND seen.coroutine_name = n.handler
                   AND seen.created_at < n.began_at
                 LIMIT 1)
              UNION ALL
                -- its turn, and what comes before: its commit, if it had committed
                (SELECT own.created_at, own.type, own.step, own.coroutine_identifier, own.child_failure_handler_iteration,
                        own.exception, own.wait, own.definition
                 FROM scoop.message_event turn
                 CROSS JOIN LATERAL (
                     SELECT own.* FROM scoop.message_event own
                     WHERE scoop.run_id(own.cooperation_lineage) = scoop.run_id(n.lineage)
                       AND own.created_at <= turn.created_at
                       AND own.message_id = n.message_id AND own.coroutine_name = n.handler
                     ORDER BY own.created_at DESC
                     LIMIT 2
                 ) own
                 WHERE turn.type = 'ROLLING_BACK' AND turn.message_id = n.message_id AND turn.coroutine_name = n.handler
                   AND scoop.run_id(turn.cooperation_lineage) = scoop.run_id(n.lineage)
                   AND own.type IN ('COMMITTED', 'ROLLING_BACK')
                   AND own.created_at > bounds.after AND own.created_at < bounds.before
                 OFFSET 0)
              UNION ALL
                SELECT last.* FROM last
            ) picked
        ) e
      UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, n.lineage, n.message_id, n.handler, n.execution,
               least(left_out.own, $6::bigint)
        FROM left_out
        OFFSET 0
    ) e
),

-- 4. The failures and waits that are read: `ranked` in the order in which they are kept, and `weighed` by their bytes.
ranked AS (
    SELECT r.*,
           row_number() OVER (PARTITION BY r.nth, r.type, r.exception IS NULL ORDER BY r.created_at DESC) > 1 AS is_former
    FROM recorded r
),
-- `bytes`: of its failure, and of all that come before it
weighed AS (
    SELECT r.*,
           sum(scoop.shown_bytes(r.exception)) OVER (
               ORDER BY r.is_former, r.created_at DESC ROWS UNBOUNDED PRECEDING) AS bytes,
           CASE WHEN scoop.bytes_of(r.wait) > 16384 THEN true ELSE scoop.is_deep(r.wait) END AS is_wait_left_out
    FROM ranked r
),

-- 5. The steps without a compensation, by the definitions under which steps completed.
uncompensated AS MATERIALIZED (
    SELECT d.id, array(SELECT step ->> 'name' FROM jsonb_array_elements(d.steps) step
                       WHERE step ->> 'compensated' = 'false') AS steps
    FROM scoop.definition d
    WHERE d.id = ANY (ARRAY(SELECT DISTINCT recorded.definition FROM recorded WHERE recorded.definition IS NOT NULL))
),

-- 6. The answer: a `described_run` with the state of its row for each run, and the messages without a handler.
described_run AS (
    SELECT max(w.lineage) AS lineage, (array_agg(w.message_id) FILTER (WHERE w.type IS NULL))[1] AS message_id,
           max(w.handler) AS handler, max(w.execution) AS execution, max(w.began_at) AS began_at, max(w.left_out) AS left_out,
           jsonb_agg(
               jsonb_build_object(
                   'type', w.type, 'step', w.step, 'worker', w.worker, 'handling', w.handling,
                   'exception', CASE WHEN w.bytes <= $10::bigint THEN scoop.shown_failure(w.exception) END,
                   'wait', CASE WHEN NOT w.is_wait_left_out THEN w.wait END,
                   'left_out', CASE WHEN w.exception IS NOT NULL AND w.bytes > $10::bigint THEN 'failure'
                                    WHEN w.is_wait_left_out THEN 'wait' END,
                   'begins_execution', w.created_at = w.began_at, 'follows_gap', w.follows_gap, 'bare', w.step = ANY (u.steps),
                   'micros', CASE WHEN w.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z'
                                  THEN (extract(epoch FROM w.created_at) * 1000000)::bigint END)
               ORDER BY w.created_at) FILTER (WHERE w.type IS NOT NULL) AS events
    FROM weighed w
    LEFT JOIN uncompensated u ON u.id = w.definition
    GROUP BY w.nth
)
SELECT n.lineage, n.message_id, n.handler, m.topic,
       coalesce(CASE WHEN r.state <> 'ended' THEN r.state::text END, ended.outcome::text) AS state, coalesce((r.tries).attempts, 0) AS attempts, coalesce((r.tries).retries, 0) AS retries, left(r.reason, 10000) AS reason, r.rolling_back, r.giving_up, r.owner,
       NOT EXISTS (
           SELECT FROM scoop.worker w, unnest(w.topics, w.handlers) AS own (topic, handler)
           WHERE own.topic = r.topic AND own.handler = r.handler
       ) AS is_abandoned,
       coalesce(r.parked_since, r.ready_at) AS ready_at, (r.awaited).signal, (r.awaited).key AS signal_key, r.give_up_at,
       -- looked up once, by index: mostly there are no pauses
       CASE WHEN r.state = 'ready' AND EXISTS (SELECT FROM scoop.pause p WHERE p.kind >= '') THEN
           scoop.pauses_of(
               r.handler, r.topic, scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage)) END AS pauses,
       clock_timestamp() AS read_at,
       n.events, NULL::timestamptz AS launched_at, NULL::uuid AS redelivered_as,
       CASE WHEN cardinality(n.lineage) > $2 THEN (
           SELECT e.id FROM scoop.message_event e
           WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(n.lineage)
             AND e.type::text = 'EMITTED' AND e.coroutine_name = n.handler
             AND e.created_at > coalesce(n.began_at, '-infinity')
           LIMIT 1
       ) IS NOT NULL ELSE false END AS has_more,
       n.execution,
       CASE WHEN n.began_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN n.began_at END AS began_at,
       n.left_out, (SELECT is_so FROM more_emitted) AS more_emitted,
       (SELECT CASE WHEN isfinite(own.began_at) AND isfinite(own.queued_at)
                    THEN extract(epoch FROM own.began_at - own.queued_at)::float8 END
        FROM (SELECT coalesce(r.began_at, ended.began_at) AS began_at, coalesce(r.queued_at, ended.queued_at) AS queued_at) own
       ) AS queued_seconds
FROM described_run n
-- one row at a time: the planner takes a tree for large if one run has most of the events, and would read all messages
CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = n.message_id OFFSET 0) m
LEFT JOIN LATERAL (
    SELECT r.* FROM scoop.run r WHERE r.root = n.lineage[1] AND r.id = scoop.run_id(n.lineage) OFFSET 0
) r ON true
LEFT JOIN LATERAL (
    SELECT e.outcome, e.began_at, e.queued_at FROM scoop.ended_run e
    WHERE e.root = n.lineage[1] AND e.id = scoop.run_id(n.lineage)
    OFFSET 0
) ended ON true
UNION ALL
SELECT u.lineage, u.message_id, NULL, u.topic, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       -- a time outside the years 1 to 9999 is none
       CASE WHEN u.created_at BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z' THEN u.created_at END,
       u.redelivered_as, NULL, NULL, NULL, NULL, (SELECT is_so FROM more_emitted), NULL
FROM unhandled u
ORDER BY lineage, launched_at NULLS FIRST
