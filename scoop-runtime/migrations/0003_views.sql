SET LOCAL search_path = pg_catalog, pg_temp;

-- Views on the working set and the record, with the functions that they use.
--
-- phase, phase_since: the state of an unfinished run in words; runs: unfinished runs, for people: no program reads it
-- ready_queue: queues of ready runs; served_queue: those that living workers claim; abandoned_queue: ready ones that none claims
-- reached_limit: sagas at their limits; limited_topic: topics of sagas whose queue has a limit
-- dropped_run: the row of a run that is not executed any more; failed_below: failed runs that come before a failed one
-- listed_handler: states and handlers of unfinished runs; unfinished_run: unfinished runs, as programs list and explain them

-- In words, what an unfinished run does or waits for. A volatile function in it would keep the planner from reading no more
-- runs than a limit says.
CREATE FUNCTION scoop.phase(r scoop.run) RETURNS text LANGUAGE sql STABLE
RETURN CASE
    WHEN r.state = 'failed' THEN 'rollback failed'
    WHEN r.state <> 'ready' THEN r.state::text
    WHEN (r.tries).attempts > 0 OR (r.tries).retries > 0 THEN 'retrying'
    WHEN r.epoch = r.unclaimed_epoch AND NOT r.rollback_requested THEN 'pending'
    WHEN (r.awaited).signal IS NOT NULL AND r.ready_at > statement_timestamp() THEN 'awaiting signal'
    WHEN (r.awaited).children IS NOT NULL AND r.ready_at > statement_timestamp() THEN 'waiting'
    WHEN r.parked_since IS NOT NULL THEN 'ready'
    WHEN r.epoch > r.unclaimed_epoch AND r.ready_at > statement_timestamp() THEN 'sleeping'
    ELSE 'ready'
END;

-- Since when an unfinished run has been in its phase.
CREATE FUNCTION scoop.phase_since(r scoop.run) RETURNS timestamptz LANGUAGE sql STABLE
RETURN CASE
    WHEN r.state = 'ready' AND r.parked_since IS NOT NULL THEN greatest(r.parked_since, r.last_event_at)
    WHEN r.state IN ('ready', 'stuck') AND r.ready_at <= statement_timestamp()
        THEN greatest(r.ready_at, r.last_event_at)
    ELSE r.last_event_at
END;

-- The unfinished runs, for people: in words, and without the ballast of the table. No program reads this view, which a
-- later version may change.
CREATE VIEW scoop.runs WITH (security_invoker = true) AS
SELECT r.root AS hierarchy,
       r.id AS run,
       r.parent,
       r.handler AS saga,
       CASE WHEN r.state = 'ended' THEN 'failed' ELSE scoop.phase(r) END AS state,
       r.rolling_back,
       regexp_replace(r.step, '^(.*) \(waiting for (signal|scheduled time)\)$', 'wait before \1') AS last_step,
       scoop.phase_since(r) AS since,
       r.queued_at,
       r.began_at,
       CASE WHEN r.state = 'ready' AND r.parked_since IS NULL AND scoop.phase(r) NOT IN ('awaiting signal', 'waiting')
                 AND r.ready_at > statement_timestamp() THEN r.ready_at END AS wakes_at,
       coalesce((r.tries).attempts::bigint + (r.tries).retries, 0) AS failed_attempts,
       r.reason,
       r.give_up_at AS deadline,
       r.giving_up,
       r.owner AS worker,
       (r.awaited).signal,
       (r.awaited).key AS signal_key,
       CASE WHEN (r.awaited).signal IS NOT NULL AND r.ready_at < '9999-12-31 00:00+00' THEN r.ready_at END AS awaits_until,
       r.topic,
       r.message_id AS message,
       r.last_event_at,
       coalesce((r.newest_execution).number, 0) AS former_executions,
       CASE WHEN r.state = 'running' OR r.parked_since IS NOT NULL THEN r.limit_key END AS limit_key,
       CASE scoop.priority_of(r.context) WHEN 1 THEN 'high' WHEN 0 THEN 'normal' ELSE 'low' END AS priority,
       CASE WHEN r.state = 'ready' THEN (
           SELECT string_agg(
               CASE WHEN (p.pause ->> 'new_runs_only')::boolean THEN 'for new runs only ' ELSE '' END
                   || 'by ' || (p.pause ->> 'source') || coalesce(': ' || (p.pause ->> 'reason'), ''), '; ' ORDER BY p.place)
           FROM jsonb_array_elements(
               scoop.pauses_of(r.handler, r.topic, scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))) WITH ORDINALITY AS p (pause, place)
       ) END AS paused
FROM scoop.run r
WHERE r.root <> '00000000-0000-0000-0000-000000000000';

-- The queues of ready runs. Goes through the index from one to the next, so that the runs in them cost nothing.
CREATE VIEW scoop.ready_queue WITH (security_invoker = true) AS
WITH RECURSIVE queue (handler, topic, reserved_for) AS (
    (SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
     WHERE r.state = 'ready'
     ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1)
    UNION ALL
    SELECT next.handler, next.topic, next.reserved_for
    FROM queue q
    CROSS JOIN LATERAL (
        SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
        WHERE r.state = 'ready' AND (r.handler, r.topic, r.reserved_for) > (q.handler, q.topic, q.reserved_for)
        ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1
    ) next
)
SELECT q.handler, q.topic, q.reserved_for FROM queue q;

-- The queues that living workers claim: each with the definition that runs may be reserved for.
CREATE VIEW scoop.served_queue AS
SELECT own.handler, own.topic, own.definition
FROM scoop.worker w
CROSS JOIN LATERAL unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition);

-- The queues of ready runs that no living worker claims: none has their saga, or the definition that they are reserved for. The sagas of
-- all workers are read once, into hash tables.
CREATE VIEW scoop.abandoned_queue AS
SELECT q.handler, q.topic, q.reserved_for FROM scoop.ready_queue q
WHERE CASE WHEN q.reserved_for = 0 THEN
               (q.handler::text, q.topic::text) IN (SELECT s.handler, s.topic FROM scoop.served_queue s)
           ELSE (q.handler::text, q.topic::text, q.reserved_for)
               IN (SELECT s.handler, s.topic, s.definition FROM scoop.served_queue s) END IS NOT TRUE;

-- The names of the sagas whose limits are reached: as many of their runs are in execution, or have begun, as may.
CREATE VIEW scoop.reached_limit WITH (security_invoker = true) AS
SELECT names.handler, l.saga::text AS saga
FROM scoop.run_limit l
CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
WHERE l.saga >= '' AND (NOT l.concurrency_by_key AND l.concurrency <= (
    SELECT count(*) FROM (
        SELECT FROM scoop.run r
        WHERE r.state = 'running' AND r.handler::text = ANY (l.handlers) AND r.id >= '00000000-0000-0000-0000-000000000000'
        LIMIT l.concurrency
    ) running
) OR NOT l.rate_by_key AND l.rate > 0 AND EXISTS (
    SELECT FROM scoop.rate_window w WHERE w.saga = l.saga AND w.key = '' AND w.opens_at > clock_timestamp()
));

-- The topics whose sagas have queues with a limit: of several limits that name a handler, the first counts.
CREATE VIEW scoop.limited_topic WITH (security_invoker = true) AS
SELECT DISTINCT first.topic, first.saga
FROM (
    SELECT DISTINCT ON (h.topic, h.handler) h.topic, l.saga
    FROM scoop.run_limit l
    CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
    JOIN scoop.handler h ON h.handler::text = names.handler AND h.retired_at IS NULL
    WHERE l.saga >= '' AND l.queue > 0
    ORDER BY h.topic, h.handler, l.saga
) first;

-- The states and handlers of unfinished runs. Each round reads 16 entries of the index of lists after the last known handler of a
-- state, and takes their handlers. So a handler costs one round at most, however many runs it has.
CREATE VIEW scoop.listed_handler AS
WITH RECURSIVE listed (state, handlers) AS (
    SELECT s.state, first.handlers
    FROM unnest('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) AS s (state)
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT r.handler ORDER BY r.handler) AS handlers
        FROM (
            SELECT r.handler FROM scoop.run r
            WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000' AND r.state = s.state
            ORDER BY r.handler LIMIT 16
        ) r
    ) first
    UNION ALL
    SELECT l.state, next.handlers
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT r.handler ORDER BY r.handler) AS handlers
        FROM (
            SELECT r.handler FROM scoop.run r
            WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000' AND r.state = l.state
              AND r.handler > l.handlers[cardinality(l.handlers)]
            ORDER BY r.handler LIMIT 16
        ) r
    ) next
    WHERE l.handlers IS NOT NULL
)
SELECT l.state, h.handler FROM listed l CROSS JOIN LATERAL unnest(l.handlers) AS h (handler);

-- The row of a run that is not executed any more. If its requested rollback has not begun, it has committed, as before the request. Any
-- other one is dropped.
CREATE FUNCTION scoop.dropped_run(r scoop.run) RETURNS scoop.ended_run LANGUAGE sql STABLE
RETURN (
    SELECT ROW(
        r.root, r.id, r.parent, r.lineage, r.message_id, r.topic, r.handler,
        CASE WHEN done.created_at IS NOT NULL THEN 'committed' ELSE 'dropped' END::scoop.run_outcome,
        CASE WHEN done.created_at IS NULL THEN r.failure END,
        NULL::jsonb,
        CASE WHEN done.created_at IS NULL THEN r.context ELSE done.context END,
        r.queued_at, r.began_at, coalesce(done.created_at, r.last_event_at), false
    )::scoop.ended_run
    FROM (SELECT) AS always
    LEFT JOIN LATERAL (
        SELECT e.created_at, e.context FROM scoop.message_event e
        WHERE r.rollback_requested AND r.epoch = r.unclaimed_epoch
          AND scoop.run_id(e.cooperation_lineage) = r.id AND e.type::text = 'COMMITTED' AND e.coroutine_name = r.handler
        ORDER BY e.created_at DESC
        LIMIT 1
    ) done ON true
);

-- The failed runs that come before the failed run `above`, since it failed because of them: those below it that failed by themselves. The
-- nearest first (`place`), and on each level the one that has been failed for longest. At most `read_max` runs below it are read, the
-- nearest first. If all of these failed because of runs below them, the deepest ones stand for those.
CREATE FUNCTION scoop.failed_below(of_root uuid, above uuid, limit_to bigint, read_max bigint)
RETURNS TABLE (run uuid, handler text, failure jsonb, place bigint)
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
    -- without duplicates, so that it ends at forged rows that lead in a circle
    WITH RECURSIVE below (id) AS (
        SELECT r.id FROM scoop.run r WHERE r.root = of_root AND r.parent = above AND r.state::text = 'failed'
        UNION
        SELECT child.id
        FROM below
        CROSS JOIN LATERAL (
            SELECT r.id FROM scoop.run r
            WHERE r.root = of_root AND r.parent = below.id AND r.state::text = 'failed'
            OFFSET 0
        ) child
    ),
    nearest AS MATERIALIZED (
        SELECT r.id, r.handler, r.rollback_failure, r.ready_at, cardinality(r.lineage) AS depth,
               -- a count, so that each is looked up by index
               (SELECT count(*) FROM (
                    SELECT FROM scoop.run child
                    WHERE child.root = of_root AND child.parent = r.id AND child.state::text = 'failed' LIMIT 1) one
               ) = 0 AS is_first
        FROM (SELECT below.id FROM below LIMIT read_max) read
        CROSS JOIN LATERAL (SELECT r.* FROM scoop.run r WHERE r.root = of_root AND r.id = read.id OFFSET 0) r
    ),
    listed AS (
        SELECT n.*, row_number() OVER (ORDER BY CASE WHEN n.is_first THEN n.depth ELSE -n.depth END, n.ready_at, n.id) AS place
        FROM nearest n
        WHERE n.is_first OR NOT EXISTS (SELECT FROM nearest other WHERE other.is_first)
    )
    SELECT l.id, l.handler::text, l.rollback_failure, l.place FROM listed l WHERE l.place <= limit_to
$$;

-- The unfinished runs as programs list and explain them: the state in words, since when they are in it, and what they wait
-- for. A run that is ready and due waits for the end of a pause, if one covers it; for a program, if no living worker claims its
-- queue (as in abandoned_queue); for the limit of its saga or of its key, if that is reached; or else for a slot. A waiting run
-- waits for its children. `latest_failure` is the failure of the rollback if that rests as failed, and otherwise the reason of the
-- rollback. `other_failure` is the other one of the two, if the rollback has failed.
CREATE VIEW scoop.unfinished_run WITH (security_invoker = true) AS
SELECT r.*, scoop.phase(r) AS phase, scoop.phase_since(r) AS since,
       CASE WHEN r.state = 'failed' THEN 'operator'
            WHEN r.state = 'waiting' OR scoop.phase(r) = 'waiting' THEN 'children'
            WHEN r.state = 'stuck' THEN CASE WHEN (r.tries).unknown_attempts >= 12 THEN 'operator' ELSE 'program' END
            WHEN r.state = 'running' THEN 'nothing'
            WHEN scoop.phase(r) = 'awaiting signal' THEN 'signal'
            WHEN r.ready_at > clock_timestamp() AND r.parked_since IS NULL THEN 'time'
            WHEN r.handler::text IN (SELECT p.covers FROM scoop.paused p WHERE p.kind = 'handler' AND NOT p.new_runs_only)
                OR r.topic::text IN (SELECT p.name::text FROM scoop.pause p WHERE p.kind = 'topic' AND NOT p.new_runs_only)
                OR EXISTS (SELECT FROM scoop.pause p WHERE p.kind = 'everything' AND NOT p.new_runs_only)
                -- looked up once: mostly there is no such pause
                OR EXISTS (SELECT FROM scoop.pause p WHERE p.kind >= '' AND p.new_runs_only) AND r.began_at IS NULL
                    AND scoop.is_paused_for_new(r.handler, r.topic)
                    AND scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage) THEN 'pause'
            WHEN CASE WHEN r.reserved_for = 0 THEN
                          (r.handler::text, r.topic::text) IN (SELECT s.handler, s.topic FROM scoop.served_queue s)
                      ELSE (r.handler::text, r.topic::text, r.reserved_for)
                          IN (SELECT s.handler, s.topic, s.definition FROM scoop.served_queue s) END IS NOT TRUE THEN 'program'
            WHEN r.ready_at > clock_timestamp()
                OR r.handler::text IN (SELECT l.handler FROM scoop.reached_limit l) THEN 'limit'
            ELSE 'slot'
       END AS waits_for,
       CASE WHEN r.state = 'failed' THEN r.rollback_failure ELSE r.failure END AS latest_failure,
       CASE WHEN r.state = 'failed' THEN r.failure ELSE r.rollback_failure END AS other_failure
FROM scoop.run r
WHERE r.state <> 'ended';
