SET LOCAL search_path = pg_catalog, pg_temp;

-- Views on the working set and the record, with the functions that they use.
--
-- phase, phase_since: the state of an unfinished run in words; runs: unfinished runs, for people: no program reads it
-- ready_queue: queues of ready runs; served_queue: those that living workers claim; abandoned_queue: ready ones that none claims
-- reached_limit: sagas at their limits; limited_topic: topics of sagas whose queue has a limit
-- recorded_rollback_failure: failed rollbacks by the record; latest_rollback_failure, rollback_failure_of:
-- the latest failure of a rollback; dropped_run: the row of a run that is not executed any more; rollback_state,
-- blocking_rollbacks: failed rollbacks that end before a run goes on;
-- shown_rollback_failure: the failure to show of a failed rollback
-- listed_handler: states and handlers of unfinished runs; unfinished_run: unfinished runs, as programs list and explain them

-- In words, what an unfinished run does or waits for. A volatile function in it would keep the planner from reading no more
-- runs than a limit says.
CREATE FUNCTION scoop.phase(r scoop.run) RETURNS text LANGUAGE sql STABLE
RETURN CASE
    WHEN r.awaits_operator THEN 'awaiting operator'
    WHEN r.state <> 'ready' THEN r.state::text
    WHEN r.attempts > 0 OR r.retries > 0 THEN 'retrying'
    WHEN r.epoch = r.unclaimed_epoch AND NOT r.rollback_requested THEN 'pending'
    WHEN r.signal IS NOT NULL AND r.ready_at > statement_timestamp() THEN 'awaiting signal'
    WHEN r.parked_since IS NOT NULL THEN 'ready'
    WHEN r.epoch > r.unclaimed_epoch AND r.ready_at > statement_timestamp() THEN 'sleeping'
    ELSE 'ready'
END;

-- Since when an unfinished run has been in its phase.
CREATE FUNCTION scoop.phase_since(r scoop.run) RETURNS timestamptz LANGUAGE sql STABLE
RETURN CASE
    WHEN r.state = 'ready' AND r.parked_since IS NOT NULL THEN greatest(r.parked_since, r.last_event_at)
    WHEN (r.state IN ('ready', 'stuck') OR r.awaits_operator) AND r.ready_at <= statement_timestamp()
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
       CASE WHEN r.state = 'ready' AND r.parked_since IS NULL AND scoop.phase(r) <> 'awaiting signal'
                 AND r.ready_at > statement_timestamp() THEN r.ready_at END AS wakes_at,
       r.attempts::bigint + r.retries AS failed_attempts,
       r.reason,
       r.give_up_at AS deadline,
       r.giving_up,
       r.owner AS worker,
       r.signal,
       r.signal_key,
       CASE WHEN r.signal IS NOT NULL AND r.ready_at < '9999-12-31 00:00+00' THEN r.ready_at END AS awaits_until,
       r.topic,
       r.message_id AS message,
       r.last_event_at,
       r.execution AS former_executions,
       CASE WHEN r.state = 'running' OR r.parked_since IS NOT NULL THEN r.limit_key END AS limit_key,
       CASE scoop.priority_of(r.context) WHEN 1 THEN 'high' WHEN 0 THEN 'normal' ELSE 'low' END AS priority,
       CASE WHEN r.state = 'ready' THEN (
           SELECT string_agg(
               'by ' || (p.pause ->> 'source') || coalesce(': ' || (p.pause ->> 'reason'), ''), '; ' ORDER BY p.place)
           FROM jsonb_array_elements(scoop.pauses_of(r.handler, r.topic)) WITH ORDINALITY AS p (pause, place)
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

-- The topics on which launches need a place in the queue of a saga: of several limits that name a handler, the first counts, as in
-- scoop.lease_places.
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

-- The failed rollbacks that no operator has settled, by the record: the rows that rollback_failure has to have. A forged event
-- may have no handler.
CREATE VIEW scoop.recorded_rollback_failure WITH (security_invoker = true) AS
SELECT e.cooperation_lineage[1] AS root, scoop.run_id(e.cooperation_lineage) AS run,
       e.cooperation_lineage[cardinality(e.cooperation_lineage) - 1] AS parent, cardinality(e.cooperation_lineage) AS depth,
       coalesce(e.coroutine_name, 'unknown') AS handler, e.message_id, e.created_at AS failed_at
FROM scoop.message_event e
WHERE e.type = 'ROLLBACK_FAILED'
  -- a count, so that each is looked up by index
  AND (SELECT count(*) FROM scoop.message_event settled
       WHERE settled.type = 'ROLLED_BACK' AND settled.coroutine_name = e.coroutine_name
         AND settled.message_id = e.message_id) = 0;

-- The states and handlers of unfinished runs. Each round reads 16 entries of the index of lists after the last known handler of a
-- state, and takes their handlers. So a handler costs one round at most, however many runs it has.
CREATE VIEW scoop.listed_handler AS
WITH RECURSIVE listed (state, handlers) AS (
    SELECT s.state, first.handlers
    FROM unnest('{ready,running,waiting,stuck}'::scoop.run_state[]) AS s (state)
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

-- The latest failure of the rollback of a run, of which `first` is the first.
CREATE FUNCTION scoop.latest_rollback_failure(run uuid, first jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce((
    SELECT f.exception FROM scoop.repeated_failure f
    WHERE f.run = latest_rollback_failure.run
    ORDER BY f.failed_at DESC
    LIMIT 1
), first);

-- The latest failure of the rollback of a run; null if that has never failed.
CREATE FUNCTION scoop.rollback_failure_of(of_root uuid, of_run uuid) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN scoop.latest_rollback_failure(of_run, (
    SELECT e.exception FROM scoop.message_event e
    WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = of_root
      AND scoop.run_id(e.cooperation_lineage) = of_run));

-- The row of a run that is not executed any more. If its requested rollback has not begun, it has committed, as before the request. If
-- its rollback had failed, that is its end, with the latest failure. Any other one is dropped.
CREATE FUNCTION scoop.dropped_run(r scoop.run) RETURNS scoop.ended_run LANGUAGE sql STABLE
RETURN (
    SELECT ROW(
        r.root, r.id, r.parent, r.lineage, r.message_id, r.topic, r.handler,
        CASE WHEN done.created_at IS NOT NULL THEN 'committed' WHEN r.rollback_failed_before THEN 'rollback_failed' ELSE 'dropped'
        END::scoop.run_outcome,
        CASE WHEN done.created_at IS NULL THEN r.failure END,
        CASE WHEN r.rollback_failed_before THEN scoop.rollback_failure_of(r.root, r.id) END,
        CASE WHEN done.created_at IS NULL THEN r.context ELSE done.context END,
        coalesce(done.created_at, r.last_event_at)
    )::scoop.ended_run
    FROM (SELECT) AS always
    LEFT JOIN LATERAL (
        SELECT e.created_at, e.context FROM scoop.message_event e
        WHERE r.rollback_requested AND NOT r.rollback_failed_before AND r.epoch = r.unclaimed_epoch
          AND e.type = 'COMMITTED' AND e.message_id = r.message_id AND e.coroutine_name = r.handler
        OFFSET 0
    ) done ON true
);

-- Whether a failed child blocks a failed run, and whether that run is in repair. A child blocks a run if it failed after the newest
-- suspension of the run, which has accepted earlier failures. A suspension older than all child failures accepted none of them,
-- so only later ones are read: `suspended_at` is '-infinity' if there is none, and null without failed children. In repair a run
-- is at work in the working set, or waits there until its parent records the failure.
CREATE FUNCTION scoop.rollback_state(of_root uuid, of_run uuid, of_depth int)
RETURNS TABLE (suspended_at timestamptz, is_blocked boolean, in_repair boolean)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT suspended.created_at,
           CASE WHEN suspended.created_at IS NULL THEN false ELSE (
               SELECT child.failed_at FROM scoop.rollback_failure child
               WHERE child.root = of_root AND child.parent = of_run AND child.depth = of_depth::bigint + 1
               ORDER BY child.failed_at DESC, child.run DESC
               LIMIT 1
           ) > suspended.created_at END,
           -- a count, so that each is looked up by its key
           (SELECT count(*) FROM scoop.run r
            WHERE r.root = of_root AND r.id = of_run AND NOT (r.state = 'stuck' AND r.awaits_operator)) > 0
    FROM (
        SELECT (
            SELECT child.failed_at FROM scoop.rollback_failure child
            WHERE child.root = of_root AND child.parent = of_run AND child.depth = of_depth::bigint + 1
            ORDER BY child.failed_at, child.run
            LIMIT 1
        ) AS failed_at
        OFFSET 0
    ) oldest
    CROSS JOIN LATERAL (
        SELECT CASE WHEN oldest.failed_at IS NOT NULL THEN coalesce((
            SELECT e.created_at FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = of_run AND e.type = 'SUSPENDED' AND e.created_at >= oldest.failed_at
            ORDER BY e.created_at DESC
            LIMIT 1
        ), '-infinity') END AS created_at
        OFFSET 0
    ) suspended;
END;

-- The failed rollbacks that have to end before each of these runs goes on (`above`): its own, or those of runs below it. These are
-- failed runs that no child blocks. Either those on which an operator has to decide, which are not in the working set, or await an
-- operator there; or those in repair. Of each run the nearest first (`place`), and on each level the oldest failure first.
--
-- First finds runs, from these downwards, each once. If `limit_to` children of a run match, it does not descend below the others:
-- those matches are nearer. Then counts each match for the runs above it, the nearest first. Counting upwards stops at a run with
-- `limit_to` matches, since all runs above it have them, too. So the work is in proportion to the runs that are read, and to
-- `limit_to` for each. The depth stands for the lineage, which is as long as the hierarchy is deep. Without nested loops where
-- there is a choice: one over all runs that are found would be quadratic.
CREATE FUNCTION scoop.blocking_rollbacks(of_root uuid, of_runs uuid[], in_repair boolean, limit_to bigint)
RETURNS TABLE (above uuid, run uuid, handler text, place bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off
SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    failed record;
    -- of each run by its number: its id if it was asked for, the number of the run that it blocks, and how many it has so far
    asked uuid[] := '{}';
    blocked int[] := '{}';
    counts bigint[] := '{}';
    number int;
BEGIN
    FOR failed IN
        WITH RECURSIVE found AS (
            SELECT f.run, f.parent, f.depth, f.handler, f.failed_at, s.suspended_at, s.is_blocked, s.in_repair
            FROM (
                SELECT f.* FROM scoop.rollback_failure f
                WHERE f.root = of_root AND f.run = ANY (of_runs)
                OFFSET 0
            ) f
            CROSS JOIN LATERAL scoop.rollback_state(of_root, f.run, f.depth) s
          UNION
            SELECT nearest.*
            FROM found
            CROSS JOIN LATERAL (
                WITH child AS NOT MATERIALIZED (
                    SELECT f.run, f.parent, f.depth, f.handler, f.failed_at, s.suspended_at, s.is_blocked, s.in_repair
                    FROM (
                        -- by these columns alone: otherwise the planner may read all failures of all hierarchies by their time
                        SELECT f.* FROM scoop.rollback_failure f
                        WHERE f.root = of_root AND f.parent = found.run AND f.depth = found.depth::bigint + 1
                        ORDER BY f.failed_at, f.run
                        OFFSET 0
                    ) f
                    CROSS JOIN LATERAL scoop.rollback_state(of_root, f.run, f.depth) s
                    WHERE f.failed_at > found.suspended_at
                ),
                met AS MATERIALIZED (
                    SELECT child.* FROM child
                    WHERE NOT child.is_blocked AND child.in_repair = blocking_rollbacks.in_repair
                    ORDER BY child.failed_at, child.run
                    LIMIT limit_to
                )
                SELECT met.* FROM met
                UNION ALL
                SELECT child.* FROM child
                WHERE child.is_blocked AND (SELECT count(*) FROM met) < limit_to
            ) nearest
            WHERE found.is_blocked
        ),
        numbered AS (
            SELECT f.*, row_number() OVER (ORDER BY f.depth, f.failed_at, f.run)::int AS number FROM found f
        )
        SELECT f.number, f.run, f.handler, NOT f.is_blocked AND f.in_repair = blocking_rollbacks.in_repair AS is_met,
               one.run AS asked, parent.number AS blocked
        FROM numbered f
        LEFT JOIN numbered parent
            ON parent.run = f.parent AND parent.depth = f.depth::bigint - 1 AND parent.suspended_at < f.failed_at
        LEFT JOIN unnest(of_runs) AS one (run) ON one.run = f.run
        ORDER BY f.number
    LOOP
        asked[failed.number] := failed.asked;
        blocked[failed.number] := failed.blocked;
        counts[failed.number] := 0;
        number := CASE WHEN failed.is_met THEN failed.number END;
        WHILE counts[number] < limit_to LOOP
            counts[number] := counts[number] + 1;
            IF asked[number] IS NOT NULL THEN
                above := asked[number];
                run := failed.run;
                handler := failed.handler;
                place := counts[number];
                RETURN NEXT;
            END IF;
            number := blocked[number];
        END LOOP;
    END LOOP;
END $$;

-- The failure to show of a run whose rollback failed, and its time: the latest one of the run. But if the run waits for one that awaits
-- an operator, its own failure is from before a repair: it may be about runs that are repaired. Then it is the latest failure of
-- `first_undecided`, the first of its blocking_rollbacks on which an operator has to decide. Null: not known, it is looked up;
-- the run itself: there is none.
CREATE FUNCTION scoop.shown_rollback_failure(of_root uuid, of_run uuid, first_undecided uuid)
RETURNS TABLE (exception jsonb, failed_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(again.exception, failed.exception), coalesce(again.failed_at, failed.created_at)
    FROM (
        SELECT CASE
            -- an aggregate, so that it is looked up by its key
            WHEN (SELECT bool_or(r.state = 'waiting' AND r.awaits_operator) FROM scoop.run r
                  WHERE r.root = of_root AND r.id = of_run)
            THEN coalesce(first_undecided,
                          (SELECT b.run FROM scoop.blocking_rollbacks(of_root, ARRAY[of_run], false, 1) b), of_run)
            ELSE of_run
        END AS run
        OFFSET 0
    ) shown
    LEFT JOIN LATERAL (
        -- backwards from the newest event of the run, with the type as a text: otherwise the planner may read an index of all such
        -- events
        SELECT e.exception, e.created_at FROM scoop.message_event e
        WHERE e.cooperation_lineage[1] = of_root AND scoop.run_id(e.cooperation_lineage) = shown.run
          AND e.type::text = 'ROLLBACK_FAILED'
        ORDER BY e.created_at DESC
        LIMIT 1
    ) failed ON true
    LEFT JOIN LATERAL (
        SELECT f.exception, f.failed_at FROM scoop.repeated_failure f
        WHERE f.run = shown.run
        ORDER BY f.failed_at DESC
        LIMIT 1
    ) again ON true;
END;

-- The unfinished runs as programs list and explain them: the state in words, since when they are in it, and what they wait
-- for. A run that is ready and due waits for the end of a pause, if one covers it; for a program, if no living worker claims its
-- queue (as in abandoned_queue); for the limit of its saga or of its key, if that is reached; or else for a slot. A waiting run
-- waits for its children, or for the operator for whom these wait. `latest_failure` is the latest failure of the rollback if the
-- run awaits an operator, and otherwise the reason of the rollback. `other_failure` is the other one of the two, if the rollback
-- has failed. A run that waits for one that awaits an operator has no latest failure: its own one is from before the repair, and to
-- look below each run of a list would cost too much.
CREATE VIEW scoop.unfinished_run WITH (security_invoker = true) AS
SELECT r.*, scoop.phase(r) AS phase, scoop.phase_since(r) AS since,
       CASE WHEN r.awaits_operator THEN 'operator'
            WHEN r.state = 'waiting' THEN 'children'
            WHEN r.state = 'stuck' THEN CASE WHEN r.doubts >= 12 THEN 'operator' ELSE 'program' END
            WHEN r.state = 'running' THEN 'nothing'
            WHEN scoop.phase(r) = 'awaiting signal' THEN 'signal'
            WHEN r.ready_at > clock_timestamp() AND r.parked_since IS NULL THEN 'time'
            WHEN r.handler::text IN (SELECT p.covers FROM scoop.paused p WHERE p.kind = 'handler')
                OR r.topic::text IN (SELECT p.name::text FROM scoop.pause p WHERE p.kind = 'topic')
                OR EXISTS (SELECT FROM scoop.pause p WHERE p.kind = 'everything') THEN 'pause'
            WHEN CASE WHEN r.reserved_for = 0 THEN
                          (r.handler::text, r.topic::text) IN (SELECT s.handler, s.topic FROM scoop.served_queue s)
                      ELSE (r.handler::text, r.topic::text, r.reserved_for)
                          IN (SELECT s.handler, s.topic, s.definition FROM scoop.served_queue s) END IS NOT TRUE THEN 'program'
            WHEN r.ready_at > clock_timestamp()
                OR r.handler::text IN (SELECT l.handler FROM scoop.reached_limit l) THEN 'limit'
            ELSE 'slot'
       END AS waits_for,
       CASE WHEN NOT (r.awaits_operator AND r.state = 'waiting') THEN coalesce(
           CASE WHEN r.awaits_operator THEN scoop.rollback_failure_of(r.root, r.id) END,
           r.rollback_failure, r.failure) END AS latest_failure,
       CASE WHEN r.awaits_operator THEN r.failure
            WHEN r.rollback_failed_before THEN scoop.rollback_failure_of(r.root, r.id) END AS other_failure
FROM scoop.run r
WHERE r.state <> 'ended';
