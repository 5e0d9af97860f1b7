SET LOCAL search_path = pg_catalog, pg_temp;

-- The views and functions. From the first release on a later version of a function takes another name, since programs
-- of both versions may run.
--
-- Views      runs: unfinished runs, for people
--            ready_queue: queues of ready runs; abandoned_queue: those that no living worker claims;
--            listed_handler: states and handlers of unfinished runs; unfinished_run: unfinished runs, as programs list and explain them;
--            reached_limit: sagas at their limits; run_end: ends of runs; recorded_rollback_failure: failed rollbacks by the record;
--            limited_topic: topics of sagas whose queue has a limit
-- Workers    is_gone: whether the session of a worker has ended
-- Runs       phase, phase_since: what a run does or waits for; tried: failed attempts
--            has_to_give_up, wakes_at, queue_time: parts of statements
--            settle: what follows from a move of a run; failed_children: failures for a parent
-- Failed     is_deep, is_readable, send_failed, stuck_failure: messages about failures; shown_failure: a failure as lists read it;
--            latest_rollback_failure: the failure of a rollback that may have failed again; rollback_failure_of: that of a run
-- Launches   launch: messages with the runs of their handlers; send_signal: signals; lease_places: places in queues with a
--            limit; waiting_runs: the length of a queue
-- Retention  keep_of, keep_keys_of, needs_archive, kept_since: times and settings of a type of messages;
--            retention_next, retention_settle, retention_put_off: the next hierarchies to delete;
--            prune: hierarchies at rest; prune_signals: signals that reach no run any more; prune_keys: kept unique keys;
--            trim_ended_pauses: ended pauses
-- Pauses     paused: what each pause covers; pauses_of: those of a run
-- Version    schema_version

-- What each pause covers: everything, a topic, or a handler under all names that its saga has had.
CREATE VIEW scoop.paused WITH (security_invoker = true) AS
SELECT p.kind, p.name, p.name::text AS covers, p.reason, p.source, p.since, p.until
FROM scoop.pause p
UNION
SELECT p.kind, p.name, covered.name, p.reason, p.source, p.since, p.until
FROM scoop.pause p
JOIN scoop.handler h ON p.kind = 'handler' AND h.was IS NOT NULL
    AND p.name::text = ANY (h.handler::text || h.was)
CROSS JOIN LATERAL unnest(h.handler::text || h.was) AS covered (name);

-- The pauses that cover the runs of a handler on a topic, longest first; null if there are none. A forged row may have longer
-- texts than programs write.
CREATE FUNCTION scoop.pauses_of(of_handler text, of_topic text) RETURNS jsonb LANGUAGE sql STABLE
RETURN (
    SELECT jsonb_agg(
        jsonb_build_object(
            'kind', p.kind, 'name', p.name, 'reason', left(p.reason, 1000), 'source', left(p.source, 1000),
            'since', (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.since))) * 1000000)::bigint,
            'until', CASE WHEN p.until IS NOT NULL THEN
                (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.until))) * 1000000)::bigint END)
        ORDER BY p.since, p.kind, p.name)
    FROM scoop.paused p
    WHERE CASE p.kind WHEN 'everything' THEN true WHEN 'topic' THEN p.covers = of_topic ELSE p.covers = of_handler END
);

-- In words, what an unfinished run does or waits for. A volatile function in it would keep the planner from reading no more
-- runs than a limit says.
CREATE FUNCTION scoop.phase(r scoop.run) RETURNS text LANGUAGE sql STABLE
RETURN CASE
    WHEN r.state = 'stuck' AND r.awaits_operator THEN 'awaiting operator'
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
    WHEN r.state IN ('ready', 'stuck') AND r.ready_at <= statement_timestamp() THEN greatest(r.ready_at, r.last_event_at)
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

-- The queues of ready runs that no living worker claims: none has their saga, or the definition that they are reserved for.
CREATE VIEW scoop.abandoned_queue AS
SELECT q.handler, q.topic, q.reserved_for FROM scoop.ready_queue q
WHERE NOT EXISTS (
    SELECT FROM scoop.worker w, unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition)
    WHERE own.handler = q.handler AND own.topic = q.topic AND q.reserved_for IN (0, own.definition)
);

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

-- The ends of runs, for lists of them: with the condition that chooses the index of ends.
CREATE VIEW scoop.run_end WITH (security_invoker = true) AS
SELECT e.* FROM scoop.message_event e
WHERE e.type IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED') AND e.created_at >= '-infinity';

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
       e.cooperation_lineage[cardinality(e.cooperation_lineage) - 1] AS parent,
       coalesce(e.coroutine_name, 'unknown') AS handler, e.message_id, e.created_at AS failed_at
FROM scoop.message_event e
WHERE e.type = 'ROLLBACK_FAILED'
  -- a count, so that each is looked up by index
  AND (SELECT count(*) FROM scoop.message_event settled
       WHERE settled.type = 'ROLLED_BACK' AND settled.coroutine_name = e.coroutine_name
         AND settled.message_id = e.message_id) = 0;

-- The states and handlers of unfinished runs. Goes through the index of lists from one to the next, so that the runs of
-- each cost nothing.
CREATE VIEW scoop.listed_handler AS
WITH RECURSIVE listed (state, handler) AS (
    (SELECT r.state, r.handler FROM scoop.run r
     WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
     ORDER BY r.state, r.handler LIMIT 1)
    UNION ALL
    SELECT next.state, next.handler
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT r.state, r.handler FROM scoop.run r
        WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
          AND (r.state, r.handler) > (l.state, l.handler)
        ORDER BY r.state, r.handler LIMIT 1
    ) next
)
SELECT l.state, l.handler FROM listed l;

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

-- The unfinished runs as programs list and explain them: the state in words, since when they are in it, and what they wait
-- for. A run that is ready and due waits for the end of a pause, if one covers it; for a program, if its queue is abandoned; for the
-- limit of its saga or of its key, if that is reached; or else for a slot. The failure of a run that awaits an operator is the latest
-- one of its rollback, that of others the reason of the rollback. If the rollback of a run has failed, the other one of the two is there,
-- too.
CREATE VIEW scoop.unfinished_run WITH (security_invoker = true) AS
SELECT r.*, scoop.phase(r) AS phase, scoop.phase_since(r) AS since,
       CASE WHEN r.state = 'waiting' THEN 'children'
            WHEN r.state = 'stuck' THEN CASE WHEN r.awaits_operator OR r.doubts >= 12 THEN 'operator' ELSE 'program' END
            WHEN r.state = 'running' THEN 'nothing'
            WHEN scoop.phase(r) = 'awaiting signal' THEN 'signal'
            WHEN r.ready_at > clock_timestamp() AND r.parked_since IS NULL THEN 'time'
            WHEN r.handler::text IN (SELECT p.covers FROM scoop.paused p WHERE p.kind = 'handler')
                OR r.topic::text IN (SELECT p.name::text FROM scoop.pause p WHERE p.kind = 'topic')
                OR EXISTS (SELECT FROM scoop.pause p WHERE p.kind = 'everything') THEN 'pause'
            WHEN (r.handler::text, r.topic::text, r.reserved_for)
                IN (SELECT q.handler::text, q.topic::text, q.reserved_for FROM scoop.abandoned_queue q) THEN 'program'
            WHEN r.ready_at > clock_timestamp()
                OR r.handler::text IN (SELECT l.handler FROM scoop.reached_limit l) THEN 'limit'
            ELSE 'slot'
       END AS waits_for,
       coalesce(
           CASE WHEN r.awaits_operator THEN scoop.rollback_failure_of(r.root, r.id) END,
           r.rollback_failure, r.failure) AS latest_failure,
       CASE WHEN r.awaits_operator THEN r.failure
            WHEN r.rollback_failed_before THEN scoop.rollback_failure_of(r.root, r.id) END AS other_failure
FROM scoop.run r
WHERE r.state <> 'ended';

-- Whether the session of a worker is gone: its lock is free, or no backend of the worker's role is left that could hold
-- it. Every role of the database can read the key of a lock in `pg_locks`, queue for it, and get it when the worker
-- dies; but it cannot be that backend. The start of a backend is visible to members of its role only.
-- Locks: the advisory lock, until the end of the transaction, if it is free although that backend lives: the server has room for
-- a few thousand locks, and there may be more rows of dead workers.
CREATE FUNCTION scoop.is_gone(lock_key bigint, backend int, backend_since timestamptz, role oid) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN CASE WHEN EXISTS (
    SELECT FROM pg_stat_get_activity(backend) a
    WHERE a.usesysid = role AND coalesce(a.backend_start = backend_since, true)
) THEN pg_try_advisory_xact_lock(lock_key) ELSE true END;

-- The failed attempts before one more by a program with this definition: how many were of the same step, and under
-- which definitions. `again` is whether the former attempts were of the same step. If it is null, they were if they
-- were under the same definition. The definition is null if it is unknown.
CREATE FUNCTION scoop.tried(INOUT attempts int, INOUT retries int, INOUT tried_under int[], definition int, again boolean)
LANGUAGE sql IMMUTABLE
RETURN (
    -- bounded, so that a forged count cannot overflow
    SELECT ROW (CASE WHEN same THEN least(attempts, 2000000000) ELSE 0 END,
                CASE WHEN same THEN least(retries, 2000000000) ELSE 0 END,
                CASE WHEN definition IS NULL THEN former ELSE array_remove(former, definition) || definition END)
    FROM (VALUES (
        coalesce(again, definition IS NULL OR tried_under[cardinality(tried_under)] = definition),
        CASE WHEN (attempts > 0 OR retries > 0) AND array_ndims(tried_under) = 1 THEN tried_under END
    )) AS v (same, former)
);

-- Whether a run has to give up at this time. Its claim says so, and a settlement of anything but a failure is void then.
-- The planner replaces the call by its text.
CREATE FUNCTION scoop.has_to_give_up(giving_up boolean, give_up_at timestamptz, at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (giving_up OR give_up_at <= at) IS TRUE;

-- The time from which a run is ready whose children have ended: at once, or when the time is over for which it waits,
-- too. Only such a time is later than the last event of a run that has begun. The planner replaces the call by its text.
CREATE FUNCTION scoop.wakes_at(ready_at timestamptz, last_event_at timestamptz, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ready_at > last_event_at AND ready_at > at THEN ready_at ELSE at END;

-- The time by which a run is ordered in its queue, which has been ready since `ready_at`: each level of priority counts as
-- five minutes (`Priority::HEAD_START`). In a range that allows the calculation, as a row may have an infinite time. The
-- planner replaces the call by its text.
CREATE FUNCTION scoop.queue_time(ready_at timestamptz, priority int) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', ready_at)) - priority * interval '5 minutes';

-- Persists a move of a run that the shorter statements (`sql/settle/`) do not cover. As a function, it spends nothing
-- on absent parts. Its own settings give it one plan on every connection: lookups by index, independent of the tables'
-- contents, and never planned anew. From the first release on a later version of it takes another name, since programs
-- of both may run.

-- Applies a settlement to its run, if that still has the epoch of the move, and raises the epoch; otherwise does
-- nothing. So a run that another worker took over is unchanged, and a settlement that is sent twice is applied once. A
-- move other than a failure is not applied either if the run has to give up by now.
-- Locks: the row of the run, and those of its failed children; its row of rollback_failure, if its rollback fails, or had failed
-- and ends.
-- `worker` is its identifier in events. `claim` is what `scoop_run.claim` must be in this
-- transaction: null outside the transaction of a step.
CREATE FUNCTION scoop.settle(settlement jsonb, worker text, claim text)
RETURNS TABLE (
    id uuid, epoch bigint, state text, last_event_at timestamptz, overdue boolean, ready_handlers text[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s record;
    locked_run scoop.run;
    new_context jsonb;    -- the context of the run from now on
    in_rollback boolean;  -- it belongs to a rollback from now on
    turned timestamptz;   -- the time of its ROLLING_BACK, if it is one of these events
    due timestamptz;      -- its deadline from now on
    wakes_at timestamptz; -- when its wait ends, or it gives up
    has_children boolean := false;
    rollback_handlers text[];
    last_event timestamptz;
BEGIN
    IF claim IS NOT NULL AND current_setting('scoop_run.claim', true) IS DISTINCT FROM claim THEN
        RETURN;
    END IF;
    SELECT * INTO s FROM jsonb_to_record(settlement) AS s (
        root uuid, id uuid, epoch bigint, ends text,
        step varchar, jump varchar, definition int, iteration int, handler_iteration int, suspensions int,
        completions jsonb, outputs jsonb, rolling_back boolean, turns_back boolean, failure jsonb,
        rollback_failure jsonb, forgets text, event_count int, events jsonb, emissions jsonb, rollback_requests jsonb,
        rollback_cause jsonb, return_values jsonb, replied boolean, context jsonb, deadlines timestamptz[],
        wait jsonb, signals jsonb, anew jsonb, may_give_up boolean, stored boolean, failed text
    );
    SELECT r.* INTO locked_run FROM scoop.run r
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
    FOR UPDATE;
    IF NOT FOUND OR s.may_give_up
        AND scoop.has_to_give_up(locked_run.giving_up, locked_run.give_up_at, clock_timestamp()) THEN
        RETURN;
    END IF;

    id := locked_run.id;
    epoch := locked_run.epoch;
    last_event := greatest(clock_timestamp(), locked_run.last_event_at + interval '1 microsecond')
        + s.event_count * interval '1 microsecond';
    new_context := CASE WHEN s.context IS NULL THEN locked_run.context ELSE nullif(s.context, '{}') END;
    turned := CASE WHEN s.turns_back THEN clock_timestamp() END;
    in_rollback := s.turns_back OR locked_run.rollback_since IS NOT NULL;
    last_event_at := last_event;
    ready_handlers := '{}';

    -- Launched messages, and a run for each handler that is registered at this moment.
    IF s.emissions IS NOT NULL THEN
        -- large messages are stored ahead: see message_store.sql
        IF s.stored IS NOT TRUE THEN
            INSERT INTO scoop.message (id, topic, payload)
            SELECT e.id, e.topic, coalesce(e.payload, 'null')
            FROM jsonb_to_recordset(s.emissions) AS e (id uuid, topic varchar, payload jsonb);
        END IF;

        WITH delivered AS (
            INSERT INTO scoop.run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
                 context, rollback_since, give_up_at)
            SELECT coalesce(e.detached_root, locked_run.root),
                   h.run,
                   CASE WHEN e.detached_root IS NULL THEN locked_run.id END,
                   CASE WHEN e.detached_root IS NULL THEN locked_run.lineage ELSE ARRAY[e.detached_root] END || h.run,
                   e.id, h.topic, h.handler,
                   -- a deadline before the due time wins
                   least(coalesce(e.due, clock_timestamp() + e.at * interval '1 microsecond'), give_up.at),
                   last_event,
                   CASE WHEN e.context IS NULL THEN new_context ELSE nullif(e.context, '{}') END,
                   CASE WHEN in_rollback AND e.detached_root IS NULL THEN clock_timestamp() END,
                   give_up.at
            FROM jsonb_to_recordset(s.emissions) AS e (
                id uuid, topic varchar, detached_root uuid, at int, context jsonb, due timestamptz,
                deadlines timestamptz[])
            CROSS JOIN LATERAL (
                SELECT h.topic, h.handler, scoop.gen_uuid_v7() AS run
                FROM scoop.handler h WHERE h.topic = e.topic AND h.retired_at IS NULL OFFSET 0
            ) h
            CROSS JOIN LATERAL (
                SELECT min(deadline) AS at FROM unnest(e.deadlines) deadline
                WHERE NOT in_rollback OR e.detached_root IS NOT NULL OR deadline > clock_timestamp()
            ) give_up
            RETURNING handler, parent
        )
        SELECT coalesce(array_agg(DISTINCT handler::text), '{}'), coalesce(bool_or(parent IS NOT NULL), false)
        INTO ready_handlers, has_children
        FROM delivered;
    END IF;

    -- Finished runs that have to be undone: handlers of the message that have not begun to roll back.
    IF s.rollback_requests IS NOT NULL THEN
        WITH rollback_runs AS (
            INSERT INTO scoop.run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
                 rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
            SELECT locked_run.root,
                   scoop.run_id(seen.cooperation_lineage),
                   locked_run.id,
                   seen.cooperation_lineage, seen.message_id,
                   (SELECT m.topic FROM scoop.message m WHERE m.id = seen.message_id),
                   seen.coroutine_name,
                   clock_timestamp() + requested.at * interval '1 microsecond',
                   last_event,
                   true, true,
                   -- a repeated request has the recorded reason
                   coalesce(CASE WHEN locked_run.rollback_failed_before THEN (
                       SELECT e.exception FROM scoop.message_event e
                       WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = requested.message_id
                   ) END, s.rollback_cause),
                   clock_timestamp(),
                   -- higher than any forward epoch, to fence out old owners
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   -- its own last context, overlaid with the parent's current one
                   nullif(coalesce((
                       SELECT e.context FROM scoop.message_event e
                       WHERE e.type = 'COMMITTED' AND e.coroutine_name = seen.coroutine_name
                         AND e.message_id = seen.message_id
                   ), '{}') || coalesce(new_context, '{}'), '{}')
            FROM jsonb_to_recordset(s.rollback_requests) AS requested (message_id uuid, at int)
            CROSS JOIN LATERAL (
                SELECT e.* FROM scoop.message_event e
                WHERE e.type = 'SEEN' AND e.message_id = requested.message_id OFFSET 0
            ) seen
            -- a count instead of a join, so that each is looked up by index
            WHERE (
                SELECT count(*) FROM scoop.message_event e
                WHERE e.type = 'ROLLING_BACK'
                  AND e.coroutine_name = seen.coroutine_name AND e.message_id = seen.message_id
            ) = 0
            RETURNING handler
        )
        SELECT array_agg(DISTINCT handler::text) INTO rollback_handlers FROM rollback_runs;
        has_children := has_children OR rollback_handlers IS NOT NULL;
        ready_handlers := ready_handlers || coalesce(rollback_handlers, '{}');
    END IF;

    IF s.deadlines IS NOT NULL THEN
        SELECT min(deadline) INTO due FROM unnest(s.deadlines) deadline
        WHERE (deadline > coalesce(turned, locked_run.rollback_since)) IS NOT FALSE;
    END IF;
    IF s.wait IS NOT NULL THEN
        -- not in the past: claims may have gone on from there
        -- a time that programs can read, where there is no limit
        wakes_at := greatest(
            least(coalesce((s.wait ->> 'until')::timestamptz, '9999-12-31 23:59:59.999999+00'), due),
            clock_timestamp());
    END IF;
    IF s.anew IS NOT NULL THEN
        INSERT INTO scoop.message (id, topic, payload)
        VALUES ((s.anew ->> 'message')::uuid, locked_run.topic, coalesce(s.anew -> 'payload', 'null'));
        INSERT INTO scoop.execution (root, run, number, message_id, suspensions, began_at)
        VALUES (locked_run.root, locked_run.id, (s.anew ->> 'number')::int, (s.anew ->> 'message')::uuid,
                s.suspensions, last_event);
    END IF;
    IF s.ends = 'unnoted' THEN
        DELETE FROM scoop.run r WHERE r.root = locked_run.root AND r.id = locked_run.id;
        state := 'ended';
        overdue := locked_run.give_up_at <= clock_timestamp();
    ELSE
        UPDATE scoop.run r
        SET state = CASE WHEN s.ends = 'noted' THEN 'ended' WHEN has_children THEN 'waiting'
                         WHEN wakes_at IS NOT NULL THEN 'ready' ELSE 'running'
                    END::scoop.run_state,
            owner = CASE WHEN s.ends IS NULL AND NOT has_children AND wakes_at IS NULL THEN r.owner END,
            ready_at = coalesce(wakes_at, r.ready_at),
            signal = s.wait #>> '{signal,name}',
            signal_key = s.wait #>> '{signal,key}',
            signalled_by = NULL,
            epoch = r.epoch + 1,
            step = s.step, jump = s.jump, definition = s.definition, iteration = s.iteration,
            handler_iteration = s.handler_iteration, suspensions = s.suspensions, completions = s.completions,
            outputs = s.outputs,
            rolling_back = s.rolling_back, failure = s.failure, rollback_failure = s.rollback_failure,
            context = new_context, replied = s.replied,
            giving_up = r.giving_up AND NOT s.turns_back,
            give_up_at = due,
            rollback_since = coalesce(turned, r.rollback_since),
            rollback_started_at = coalesce(turned, r.rollback_started_at),
            last_event_at = last_event,
            execution = CASE WHEN s.anew IS NOT NULL THEN (s.anew ->> 'number')::int
                             WHEN s.rolling_back THEN 0 ELSE r.execution END,
            execution_since = CASE WHEN s.anew IS NOT NULL THEN last_event
                                   WHEN NOT s.rolling_back THEN r.execution_since END,
            payload_of = CASE WHEN s.anew IS NOT NULL THEN (s.anew ->> 'message')::uuid
                              WHEN NOT s.rolling_back THEN r.payload_of END,
            -- a new execution may be of another definition
            reserved_for = CASE WHEN s.anew IS NULL THEN r.reserved_for ELSE 0 END,
            attempts = 0, retries = 0, reason = NULL
        WHERE r.root = locked_run.root AND r.id = locked_run.id
        RETURNING r.state::text, r.give_up_at <= clock_timestamp() INTO state, overdue;
    END IF;
    overdue := overdue IS TRUE;

    -- A client may have requested the rollback of a part of the hierarchy before.
    IF s.rollback_requests IS NOT NULL THEN
        INSERT INTO scoop.message_event
            (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, exception,
             context)
        SELECT e.message_id, 'ROLLBACK_EMITTED', locked_run.handler, worker, e.step, locked_run.lineage,
               last_event - e.until_last * interval '1 microsecond', s.rollback_cause, new_context
        FROM jsonb_to_recordset(s.events) AS e (until_last int, message_id uuid, type text, step varchar)
        WHERE e.type = 'ROLLBACK_EMITTED'
        ON CONFLICT (message_id, type) WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED') DO NOTHING;
    END IF;

    -- A microsecond apart and in order, since participants order events by this time.
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, exception, next_step, child_failure_handler_iteration, jump, definition, wait, context)
    SELECT e.message_id, e.type::scoop.message_event_type,
           CASE WHEN e.detached_root IS NULL THEN locked_run.handler END,
           CASE WHEN e.detached_root IS NULL THEN worker END,
           e.step,
           CASE WHEN e.detached_root IS NULL THEN locked_run.lineage ELSE ARRAY[e.detached_root] END,
           last_event - e.until_last * interval '1 microsecond',
           e.exception, e.next_step, e.handler_iteration, e.jump, e.definition, e.wait,
           CASE WHEN e.context IS NULL THEN new_context ELSE nullif(e.context, '{}') END
    FROM jsonb_to_recordset(s.events) AS e (
        until_last int, message_id uuid, type text, step varchar, next_step int,
        handler_iteration int, jump varchar, definition int, exception jsonb, detached_root uuid, context jsonb,
        wait jsonb)
    WHERE e.type <> 'ROLLBACK_EMITTED';

    -- A forged row may be there already.
    IF s.rollback_failure IS NOT NULL THEN
        INSERT INTO scoop.rollback_failure (root, run, parent, handler, message_id, failed_at)
        SELECT f.root, f.run, f.parent, f.handler, f.message_id, f.failed_at
        FROM scoop.recorded_rollback_failure f
        WHERE f.root = locked_run.root AND f.run = locked_run.id
        ON CONFLICT DO NOTHING;
    ELSIF s.ends IS NOT NULL AND locked_run.rollback_failed_before THEN
        DELETE FROM scoop.rollback_failure f WHERE f.root = locked_run.root AND f.run = locked_run.id;
    END IF;

    IF s.failed IS NOT NULL THEN
        ready_handlers := ready_handlers || scoop.send_failed(
            s.failed, locked_run.root, locked_run.id, locked_run.handler, locked_run.message_id, last_event, NULL,
            s.failure, s.rollback_failure);
    END IF;

    IF s.return_values IS NOT NULL THEN
        INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
        SELECT locked_run.lineage, locked_run.handler, returned.name, coalesce(returned.value, 'null')
        FROM jsonb_to_recordset(s.return_values) AS returned (name varchar, value jsonb);
    END IF;

    IF s.signals IS NOT NULL THEN
        INSERT INTO scoop.signal (id, name, key, payload, kept_until, traceparent)
        SELECT sent.id, sent.name, sent.key, coalesce(sent.payload, 'null'),
               least(clock_timestamp() + make_interval(secs => sent.keep), '9999-12-31 00:00+00'), sent.traceparent
        FROM jsonb_to_recordset(s.signals) AS sent
            (id uuid, name varchar, key varchar, payload jsonb, keep float8, traceparent varchar);
    END IF;

    IF s.forgets IS NOT NULL THEN
        DELETE FROM scoop.run child
        WHERE child.root = locked_run.root AND child.parent = locked_run.id AND child.state = 'ended'
          AND (s.forgets = 'all' OR child.rollback_failure IS NULL);
    END IF;
    RETURN NEXT;
END $$;

-- The failed children of a run, as its next step gets them. `listed` has 50 at most, first those with a failed
-- rollback, and of each type and message one before a second one. `more` has the number of the others, by type and
-- message if one like them is listed. So a parent of many children reads little.
-- Locks: nothing.
CREATE FUNCTION scoop.failed_children(in_root uuid, of_run uuid) RETURNS jsonb LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
WITH failed AS MATERIALIZED (
    SELECT c.id, c.rollback_started_at, c.failure, c.rollback_failure, c.rollback_requested,
           c.rollback_failure IS NOT NULL AS unrolled,
           why.type, why.message,
           row_number() OVER (
               PARTITION BY c.rollback_failure IS NOT NULL, c.rollback_requested, why.type, why.message
               ORDER BY c.rollback_started_at, c.id) AS nth
    FROM scoop.run c
    CROSS JOIN LATERAL (
        SELECT coalesce(c.rollback_failure, c.failure) ->> 'type' AS type,
               left(coalesce(c.rollback_failure, c.failure) ->> 'message', 160) AS message
        OFFSET 0
    ) why
    WHERE c.root = in_root AND c.parent = of_run AND c.state = 'ended'
),
listed AS MATERIALIZED (
    SELECT * FROM failed ORDER BY NOT unrolled, nth, rollback_started_at, id LIMIT 50
),
-- each of these has one like it in the list, or none of them has
kinds AS MATERIALIZED (
    SELECT DISTINCT unrolled, rollback_requested, type, message FROM listed
),
more AS (
    SELECT unrolled, rollback_requested, kinds.type, kinds.message, count(*) AS count
    FROM failed LEFT JOIN kinds USING (unrolled, rollback_requested, type, message)
    WHERE failed.id NOT IN (SELECT id FROM listed)
    GROUP BY 1, 2, 3, 4
)
SELECT jsonb_build_object(
    'listed', coalesce((
        SELECT jsonb_agg(
            jsonb_build_object(
                'rolled_back', failure, 'rollback_failed', rollback_failure, 'rollback_requested', rollback_requested)
            ORDER BY rollback_started_at, id)
        FROM listed), '[]'),
    'more', coalesce((SELECT jsonb_agg(to_jsonb(more) ORDER BY more.count DESC) FROM more), '[]'))
$$;

-- Whether a value has more levels than programs write and read. Looks at no level below these: the server has no stack for many.
CREATE FUNCTION scoop.is_deep(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")');

-- Whether programs can read a value, or it is null: a worker reads it into its memory, and JSON of programs has no larger
-- numbers and no deeper values. The planner replaces the call by its text.
CREATE FUNCTION scoop.is_readable(value jsonb, bytes_max int) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN octet_length(value::text) > bytes_max OR scoop.is_deep(value) THEN false
    ELSE NOT coalesce(
        jsonb_path_exists(value, 'strict $.** ? (@.type() == "number" && (@ > 1.7e308 || @ < -1.7e308))'), false)
END;

-- A failure as lists of runs read it: one that is larger than programs write, which is about 128 KiB, or has more levels, is left
-- out. Its size as it is stored, which costs nothing to know, decides about most of the sizes. The planner replaces the call by its
-- text.
CREATE FUNCTION scoop.shown_failure(failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN failure IS NULL THEN NULL
    WHEN pg_column_size(failure) > 262144 OR pg_column_size(failure) > 10000 AND octet_length(failure::text) > 1048576
        THEN jsonb_build_object(
            'type', 'TooLarge', 'source', 'unknown',
            'message', 'the failure is too large to be read: ' || pg_column_size(failure) || ' bytes as it is stored')
    WHEN scoop.is_deep(failure)
        THEN '{"type": "TooDeep", "source": "unknown", "message": "the failure has too many levels to be read"}'
    ELSE failure
END;

-- Sends the message `Failed` about a run that ended or is stuck, to each topic of it that has a handler. Returns the
-- handlers with a new run. One message for each event of the run: a run that is stuck again without an event in between
-- sends nothing. Nothing is sent either in a hierarchy that a `Failed` has started.
-- Locks: nothing.
-- `at` is the time of the last event of the run, `failed_in` the step: null for that of its recorded failure.
CREATE FUNCTION scoop.send_failed(
    outcome text, run_root uuid, run uuid, saga text, of_message uuid, at timestamptz, failed_in text, failure jsonb,
    rollback_failure jsonb) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    prefix CONSTANT text := 'scoop' || '.failed';  -- in two parts: programs put the name of the schema before each dot
    of_event timestamptz := at;  -- the newest event of the run: claims of a stuck run raise its time
    topics text[];
    document jsonb;
    with_payload jsonb;
    ready_handlers text[];
BEGIN
    topics := ARRAY(
        SELECT DISTINCT h.topic FROM scoop.handler h
        WHERE h.topic = ANY (ARRAY[
                prefix, prefix || '.' || outcome, prefix || ':' || saga, prefix || '.' || outcome || ':' || saga])
          AND h.retired_at IS NULL
    );
    IF topics = '{}' OR EXISTS (
        SELECT FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = run_root
          AND e.type::text = 'EMITTED'  -- not as a type: the planner would read all of `one_per_message`
          AND starts_with((SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id), prefix)
    ) THEN
        RETURN '{}';
    END IF;
    IF outcome = 'stuck' THEN
        SELECT max(e.created_at) INTO of_event FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = run;
    END IF;
    SELECT jsonb_build_object(
            'outcome', outcome, 'saga', saga, 'hierarchy', run_root, 'run', run,
            'topic', m.topic, 'at', at, 'failure', failure, 'rollback_failure', nullif(rollback_failure, 'null'),
            -- Constant types: with any other the planner cannot use the partial index.
            'step', coalesce(failed_in, CASE outcome
                WHEN 'rollback_failed' THEN (
                    SELECT e.step FROM scoop.message_event e
                    WHERE e.message_id = of_message AND e.coroutine_name = saga AND e.type = 'ROLLBACK_FAILED')
                ELSE (
                    SELECT e.step FROM scoop.message_event e
                    WHERE e.message_id = of_message AND e.coroutine_name = saga AND e.type = 'ROLLING_BACK')
            END)),
        jsonb_build_object('payload', coalesce((
            SELECT newest.payload
            FROM scoop.execution x
            JOIN scoop.message newest ON newest.id = x.message_id
            WHERE x.run = send_failed.run
            ORDER BY x.number DESC
            LIMIT 1
        ), m.payload))
    INTO document, with_payload
    FROM scoop.message m WHERE m.id = of_message;
    with_payload := document || with_payload;
    IF scoop.is_readable(with_payload, 1048576) THEN
        document := with_payload;
    ELSIF NOT scoop.is_readable(document, 1048576) THEN
        -- a value of an error may be too deep: it is among the causes
        document := document || jsonb_build_object(
            'failure', failure - 'causes', 'rollback_failure', rollback_failure - 'causes');
    END IF;
    SELECT l.handlers INTO ready_handlers FROM scoop.launch((
        SELECT jsonb_agg(jsonb_build_object(
            'id', encode(substring(sha256(convert_to(concat_ws(' ', topic, outcome, run, extract(epoch FROM of_event)), 'UTF8'))
                         FROM 1 FOR 16), 'hex'),
            'root', scoop.gen_uuid_v7(), 'topic', topic, 'payload', document, 'context', '{}'::jsonb))
        FROM unnest(topics) AS topic
    )) l;
    RETURN ready_handlers;
END $$;

-- Why a run is stuck, as a failure.
CREATE FUNCTION scoop.stuck_failure(saga text, reason text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN jsonb_build_object(
    'message', coalesce(reason, 'stuck'), 'type', 'Stuck', 'source', saga, 'stackTrace', '[]'::jsonb,
    'causes', '[]'::jsonb);

-- Launches under a condition, for transactions of any session. `message_insert_claiming.sql` does the same on connections
-- of the engine and claims runs for the launching worker; a test compares the rows of both.

-- SECURITY DEFINER: a role needs only EXECUTE. So the function checks that each message starts a hierarchy of its own,
-- and claims no run.

-- Publishes messages that start hierarchies of their own, one run for each handler listed at this moment; but none that
-- is there already, as one that may be launched only once can be, and none at all if one of them requires a handler and
-- there is none. The messages are an array of objects with id, root, topic and payload, and what else was said.
-- Locks: a message that another transaction is launching with the same id: waits for that.
CREATE FUNCTION scoop.launch(
    messages jsonb, OUT launched bigint, OUT handlers text[], OUT refused text, OUT refused_type text)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    taken uuid;
BEGIN
    SELECT a.root INTO taken
    FROM jsonb_to_recordset(messages) AS a (id uuid, root uuid)
    WHERE (SELECT count(*) FROM scoop.message known WHERE known.id = a.id) = 0
      AND (
          SELECT count(*) FROM scoop.message_event e
          WHERE scoop.run_id(e.cooperation_lineage) = a.root
      ) + (SELECT count(*) FROM scoop.run r WHERE r.root = a.root) > 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'permission denied for hierarchy %: another message has started it', taken
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF (SELECT count(DISTINCT a.root) < count(DISTINCT a.id) FROM jsonb_to_recordset(messages) AS a (id uuid, root uuid)) THEN
        RAISE EXCEPTION 'two launched messages have one hierarchy' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (
        SELECT FROM jsonb_to_recordset(messages) AS a (payload jsonb, context jsonb)
        -- a context is stored with each event of a run, and goes to its children
        CROSS JOIN LATERAL (VALUES (a.payload, 16777216), (a.context, 1048576)) AS given (value, bytes_max)
        WHERE jsonb_typeof(a.context) <> 'object' OR NOT scoop.is_readable(given.value, given.bytes_max)
    ) THEN
        RAISE EXCEPTION 'a launched message cannot be read by programs: its context is no object or larger than 1 MiB, its '
            'payload is larger than 16 MiB, or a value has a number beyond 1.7e308 or is nested deeper than 100'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The times of the caller are of a range that every worker can represent and calculate with.
    IF EXISTS (
        SELECT FROM jsonb_to_recordset(messages) AS a (due timestamptz, deadlines timestamptz[])
        CROSS JOIN LATERAL unnest(a.deadlines || a.due) AS given (time)
        WHERE given.time < '1970-01-01 00:00+00' OR given.time >= '10000-01-01 00:00+00'
    ) THEN
        RAISE EXCEPTION 'a time of a launched message is not between the years 1970 and 9999'
            USING ERRCODE = 'datetime_field_overflow';
    END IF;
    WITH asked AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(messages) AS m (
            id uuid, root uuid, topic varchar, payload jsonb, context jsonb, due timestamptz, deadlines timestamptz[],
            required text)
    ),
    -- by the same snapshot as the deliveries below; counts, so that these are looked up, one by one
    refusal AS MATERIALIZED (
        SELECT a.topic, a.required
        FROM asked a
        WHERE a.required IS NOT NULL
          AND (SELECT count(*) FROM scoop.handler h WHERE h.topic = a.topic AND h.retired_at IS NULL) = 0
          AND (SELECT count(*) FROM scoop.message known WHERE known.id = a.id) = 0
        LIMIT 1
    ),
    accepted AS MATERIALIZED (
        SELECT * FROM asked WHERE NOT EXISTS (SELECT FROM refusal)
    ),
    published AS (
        INSERT INTO scoop.message (id, topic, payload)
        SELECT a.id, a.topic, coalesce(a.payload, 'null') FROM accepted a
        ON CONFLICT (id) DO NOTHING
        RETURNING id
    ),
    recorded AS (
        INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, context)
        SELECT a.id, 'EMITTED', ARRAY[a.root], nullif(a.context, '{}')
        FROM accepted a JOIN published USING (id)
        RETURNING message_id, created_at
    ),
    delivered AS (
        INSERT INTO scoop.run
            (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
        SELECT d.root, d.run, ARRAY[d.root, d.run], d.id, d.topic, d.handler,
               -- a run that has to give up before it is due does so in time
               least(coalesce(d.due, r.created_at), d.give_up_at), r.created_at, nullif(d.context, '{}'), d.give_up_at
        FROM (
            SELECT a.*, h.handler, scoop.gen_uuid_v7() AS run,
                   (SELECT min(deadline) FROM unnest(a.deadlines) deadline) AS give_up_at
            FROM accepted a
            JOIN scoop.handler h ON h.topic = a.topic AND h.retired_at IS NULL
        ) d
        JOIN recorded r ON r.message_id = d.id
        RETURNING handler
    )
    SELECT (SELECT count(*) FROM published), ARRAY(SELECT DISTINCT d.handler::text FROM delivered d),
           (SELECT r.topic FROM refusal r), (SELECT r.required FROM refusal r)
    INTO launched, handlers, refused, refused_type;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.launch (jsonb) FROM PUBLIC;

-- Records a signal for a role that may not write the table, unless there is one with its id. Returns whether it is new.
-- A program with sagas delivers it: the caller could keep the rows of the runs locked that it reaches.
-- Locks: the new row; a signal that another transaction inserts with the same id: waits for that.
-- `traceparent` is the span of the sender, by W3C Trace Context; a malformed one is left out.
CREATE FUNCTION scoop.send_signal(
    id uuid, name text, key text, payload jsonb, seconds_kept float8, traceparent text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- as `refused_key`
    IF (octet_length(key) BETWEEN 1 AND 255 AND octet_length(name) BETWEEN 1 AND 255) IS NOT TRUE THEN
        RAISE EXCEPTION 'the name or the key of a signal does not have 1 to 255 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT scoop.is_readable(payload, 16777216) THEN
        RAISE EXCEPTION 'a signal cannot be read by programs: its payload is larger than 16 MiB, has a number beyond 1.7e308, or '
            'is nested deeper than 100' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (seconds_kept BETWEEN 0 AND 1e11) IS NOT TRUE THEN
        RAISE EXCEPTION 'a signal cannot be kept for % seconds', seconds_kept USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO scoop.signal (id, name, key, payload, kept_until, traceparent)
    VALUES (id, name, key, coalesce(payload, 'null'),
            least(clock_timestamp() + seconds_kept * interval '1 second', '9999-12-31 00:00+00'),
            CASE WHEN traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN traceparent END)
    ON CONFLICT ON CONSTRAINT signal_pkey DO NOTHING;
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.send_signal (uuid, text, text, jsonb, float8, text) FROM PUBLIC;

-- How many runs of these handlers wait for a worker? The count ends at `at_most`. It goes through the index of ready runs from one
-- queue to the next, so that sleeping runs cost nothing, and through that of parked runs.
-- Locks: nothing.
CREATE FUNCTION scoop.waiting_runs(names text[], at_most bigint) RETURNS bigint LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE queue (handler, topic, lane) AS (
            SELECT first.handler, first.topic, first.reserved_for
            FROM unnest(names) AS own (name)
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = own.name
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) first
            UNION ALL
            SELECT next.handler, next.topic, next.reserved_for
            FROM queue q
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = q.handler AND (r.topic, r.reserved_for) > (q.topic, q.lane)
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) next
        )
        SELECT count(*)
        FROM (
            SELECT waiting.id
            FROM queue q
            CROSS JOIN LATERAL (
                (SELECT due.id
                 FROM (VALUES (1), (0), (-1)) AS level (priority)
                 CROSS JOIN LATERAL (
                     SELECT r.id FROM scoop.run r
                     WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic
                       AND r.reserved_for = q.lane AND scoop.priority_of(r.context) = level.priority
                       AND r.ready_at <= (SELECT clock_timestamp())
                     ORDER BY r.ready_at LIMIT at_most
                 ) due)
                UNION ALL
                -- the order chooses the index of parked runs
                (SELECT r.id FROM scoop.run r
                 WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = q.handler AND r.topic = q.topic
                   AND r.reserved_for = q.lane AND r.ready_at > (SELECT clock_timestamp())
                 ORDER BY r.limit_key LIMIT at_most)
            ) waiting
            LIMIT at_most
        ) waiting
    );
END $$;

-- Leases places in the queue of a saga with a limit to a program that launches messages: as many as it needs now, and a part of
-- those that are left. The places of all programs and the runs that wait for a worker are together no more than the limit, so a
-- launch with a place does not exceed it. The holder has `in_use` places for launches under way and for later ones. A message of
-- `in_doubt` may be launched or not: it keeps its place until it is visible, since its run counts from then on. `most` is null
-- if the saga has no such limit. Without anything in use or needed, the holder gives its places back.
--
-- The count ends at the limit.
-- Locks: an advisory lock of the saga: waits for other leases of it. Then the row of the holder, and expired ones.
CREATE FUNCTION scoop.lease_places(
    of_saga text, of_holder uuid, in_use bigint, in_doubt uuid[], needed bigint,
    OUT most bigint, OUT granted bigint, OUT is_scarce boolean, OUT launched uuid[])
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '2s' SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest text;
    names text[];
    taken bigint;
    room bigint;
BEGIN
    IF (of_holder IS NOT NULL AND in_use BETWEEN 0 AND 100000 AND needed BETWEEN 0 AND 100000
        AND cardinality(in_doubt) <= 100000) IS NOT TRUE THEN
        RAISE EXCEPTION 'a program cannot hold % places and need % more', in_use, needed
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT l.saga INTO newest FROM scoop.run_limit l
    WHERE l.saga >= '' AND l.queue > 0 AND of_saga = ANY (l.handlers) ORDER BY l.saga LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('scoop.queue_lease ' || newest, 3));

    -- Each statement from here on sees what the former holders of the lock have done.
    SELECT least(l.queue, 100000), l.handlers INTO most, names FROM scoop.run_limit l WHERE l.saga = newest AND l.queue > 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- No program leases places for a minute: such a row is not of one, or the clock was set back.
    DELETE FROM scoop.queue_lease l
    WHERE l.saga = ANY (names)
      AND (l.until > clock_timestamp() AND l.until < clock_timestamp() + interval '1 minute') IS NOT TRUE;
    SELECT coalesce(array_agg(d.id), '{}') INTO launched
    FROM unnest(in_doubt) AS d (id)
    WHERE (SELECT count(*) FROM scoop.message m WHERE m.id = d.id) > 0;
    taken := in_use + cardinality(in_doubt) - cardinality(launched);
    room := most - taken - (
        SELECT coalesce(sum(greatest(least(coalesce(l.places, 0), 100000), 0)), 0) FROM scoop.queue_lease l
        WHERE l.saga = ANY (names) AND l.holder <> of_holder);
    IF room > 0 AND needed > 0 THEN
        room := room - scoop.waiting_runs(names, room);
    END IF;
    room := greatest(room, 0);
    granted := CASE WHEN room > needed AND needed > 0 THEN needed + least((room - needed) / 16, 1000) ELSE least(room, needed) END;
    is_scarce := room - granted < most - most / 4;
    IF taken + granted > 0 THEN
        INSERT INTO scoop.queue_lease AS l (saga, holder, places, until)
        VALUES (newest, of_holder, taken + granted, clock_timestamp() + interval '5 seconds')
        ON CONFLICT ON CONSTRAINT queue_lease_pkey DO UPDATE SET places = excluded.places, until = excluded.until;
    ELSE
        DELETE FROM scoop.queue_lease l WHERE l.saga = newest AND l.holder = of_holder;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.lease_places (text, uuid, bigint, uuid[], bigint) FROM PUBLIC;

-- For how many seconds finished hierarchies of this topic are kept: as the longest of its handlers says; if all of these are
-- retired, as they said.
CREATE FUNCTION scoop.keep_of(of_topic text, is_rolled_back boolean, by_default float8) RETURNS float8 LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(max(k.seconds) FILTER (WHERE h.handler IS NOT NULL), max(k.seconds), by_default)
    FROM (
        SELECT t.topic, t.handler, CASE WHEN is_rolled_back THEN t.rolled_back ELSE t.committed END AS seconds
        FROM scoop.keep_time t WHERE t.topic = of_topic
    ) k
    LEFT JOIN scoop.handler h ON h.topic = k.topic AND h.handler = k.handler AND h.retired_at IS NULL
);

-- For how many seconds after the last event of a hierarchy the unique key of its launch counts: the longest of the times of its
-- handlers, as in scoop.keep_of.
CREATE FUNCTION scoop.keep_keys_of(of_topic text) RETURNS float8 LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(max(t.keys) FILTER (WHERE h.handler IS NOT NULL), max(t.keys), 0)
    FROM scoop.keep_time t
    LEFT JOIN scoop.handler h ON h.topic = t.topic AND h.handler = t.handler AND h.retired_at IS NULL
    WHERE t.topic = of_topic
);

-- Whether only programs with an archive delete finished hierarchies of this topic: as any of its handlers says; if all of
-- these are retired, as any of them said.
CREATE FUNCTION scoop.needs_archive(of_topic text) RETURNS boolean LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(bool_or(t.is_archived) FILTER (WHERE h.handler IS NOT NULL), bool_or(t.is_archived), false)
    FROM scoop.keep_time t
    LEFT JOIN scoop.handler h ON h.topic = t.topic AND h.handler = t.handler AND h.retired_at IS NULL
    WHERE t.topic = of_topic
);

-- Before which time an event is older than this many seconds: an hour at least, and at most a thousand years.
CREATE FUNCTION scoop.kept_since(seconds float8) RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN clock_timestamp() - least(greatest(seconds, 3600), 3.2e10) * interval '1 second';

-- The topic of the message that started a hierarchy.
CREATE FUNCTION scoop.root_topic(hierarchy uuid) RETURNS text LANGUAGE sql STABLE
RETURN (
    SELECT m.topic
    FROM scoop.message_event e
    JOIN scoop.message m ON m.id = e.message_id
    WHERE scoop.run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED'
    LIMIT 1
);

-- Deletes a hierarchy at rest of which no event is younger than the given time, which counts as an hour at least. Those that
-- committed, and those with a run that was rolled back or without any run, have times of their own; by topic, these are the
-- times for topics of which no handler says another one. The verdict is `deleted`, or why the hierarchy is kept; the counts
-- are of the deleted rows. The last three values are a row of kept_hierarchy.
--
-- At rest is what a rebuild would leave without a run, by the record alone, so that a lost working set deletes nothing.
-- Also kept is a hierarchy with a failed rollback, one that a join may still read or have rolled back, and a `Failed` that
-- would be sent again without its message. The messages of events of entities stay.
--
-- SECURITY DEFINER: a role needs only EXECUTE, and cannot delete anything else.
-- Locks: the advisory lock of the hierarchy, as hierarchy_lock.sql, and the rows of its messages, as redeliver_lock.sql;
-- does not wait for them: the verdict is `busy` then. A launch with the id of one of these messages waits.
CREATE FUNCTION scoop.prune(
    hierarchy uuid, keep_committed float8, keep_rolled_back float8, is_by_topic boolean, is_dry_run boolean,
    OUT verdict text, OUT message_count bigint, OUT event_count bigint,
    OUT kept_topic text, OUT kept_kind text, OUT kept_from timestamptz)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    prefix CONSTANT text := 'scoop' || '.failed';  -- in two parts: programs put the name of the schema before each dot
    root_messages uuid[];
    root_topic text;
    launched_at timestamptz;
    last_at timestamptz;
    is_rolled_back boolean;
    parts uuid[];  -- the hierarchy and its runs: the last ids of all lineages
    messages uuid[];
    is_recent boolean;
    is_whole boolean;
    has_failed boolean;
    is_at_rest boolean;
    about text;
    kept_keys uuid[];  -- the messages that are kept for their unique keys
    keys_until timestamptz;
BEGIN
    message_count := 0;
    event_count := 0;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- what is checked under the locks would be older than these
        RAISE EXCEPTION 'hierarchies can be pruned in a transaction at READ COMMITTED only'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- in a range that allows the calculation, as a row may have an infinite time
    SELECT array_agg(e.message_id), greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', min(e.created_at)))
    INTO root_messages, launched_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED';
    IF root_messages IS NULL THEN
        verdict := 'absent';
        RETURN;
    END IF;
    -- The longer it is kept, the more rarely it is looked at.
    kept_topic := '';
    kept_kind := 'later';
    kept_from := clock_timestamp() + greatest(interval '1 hour', (clock_timestamp() - launched_at) / 8);
    IF EXISTS (SELECT FROM scoop.run r WHERE r.root = hierarchy) THEN
        verdict := 'unfinished';
        RETURN;
    END IF;
    IF NOT is_dry_run THEN
        -- From here on nothing can add a run: neither a request to roll back nor a redelivery.
        IF NOT pg_try_advisory_xact_lock(hashtextextended(hierarchy::text, 0))
            OR (SELECT count(*) FROM (
                    SELECT m.id FROM scoop.message m WHERE m.id = ANY (root_messages) FOR UPDATE SKIP LOCKED) locked
               ) < cardinality(root_messages)
        THEN
            verdict := 'busy';
            kept_from := clock_timestamp() + interval '1 minute';
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM scoop.run r WHERE r.root = hierarchy) THEN
            verdict := 'unfinished';
            RETURN;
        END IF;
    END IF;

    -- also what former executions launched
    WITH RECURSIVE part (id) AS (
        SELECT hierarchy
      UNION
        SELECT begun.id
        FROM part
        CROSS JOIN LATERAL (
            SELECT e.message_id FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = part.id AND e.type::text = 'EMITTED'
            OFFSET 0
        ) launched
        CROSS JOIN LATERAL (
            SELECT scoop.run_id(seen.cooperation_lineage) AS id FROM scoop.message_event seen
            WHERE seen.type = 'SEEN' AND seen.message_id = launched.message_id
            OFFSET 0
        ) begun
    )
    SELECT array_agg(p.id) INTO parts FROM part p;

    WITH record AS MATERIALIZED (
        SELECT p.id AS part, e.*
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.type, e.message_id, e.coroutine_name, e.created_at, e.cooperation_lineage[1] AS root
            FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = p.id
            OFFSET 0
        ) e
    ),
    ran AS MATERIALIZED (
        SELECT r.message_id, bool_or(r.type = 'SEEN') AS begun, bool_or(r.type = 'COMMITTED') AS committed,
               bool_or(r.type = 'ROLLING_BACK') AS rolling_back, bool_or(r.type = 'ROLLED_BACK') AS rolled_back,
               bool_or(r.type = 'ROLLBACK_FAILED') AS rollback_failed
        FROM record r
        WHERE r.type IN ('SEEN', 'COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK', 'ROLLBACK_FAILED')
        GROUP BY r.part, r.message_id, r.coroutine_name
    )
    SELECT count(*), max(r.created_at), bool_and(r.root = hierarchy),
           EXISTS (SELECT FROM ran WHERE ran.rolled_back) OR NOT EXISTS (SELECT FROM ran WHERE ran.begun),
           EXISTS (SELECT FROM ran WHERE ran.rollback_failed AND NOT ran.rolled_back),
           -- as in rebuild_events.sql
           NOT EXISTS (
               SELECT FROM ran
               WHERE ran.begun AND NOT (ran.committed OR ran.rolled_back)
                  OR ran.rolling_back AND NOT ran.rolled_back
                  OR ran.begun AND NOT ran.rolling_back
                     AND ran.message_id IN (SELECT t.message_id FROM record t WHERE t.type = 'ROLLBACK_EMITTED'))
           AND NOT EXISTS (
               SELECT
               FROM record e
               CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
               LEFT JOIN LATERAL (
                   SELECT d.redelivered_at FROM scoop.redelivery d WHERE d.message_id = e.message_id AND d.copy IS NULL
                   OFFSET 0
               ) d ON true
               CROSS JOIN LATERAL (SELECT coalesce(d.redelivered_at, e.created_at) AS at) delivered
               CROSS JOIN LATERAL (
                   SELECT FROM scoop.handler h
                   WHERE h.topic = m.topic AND h.dropped_at IS NULL
                     AND h.since <= delivered.at AND coalesce(h.retired_at, 'infinity') > delivered.at
                     AND (SELECT count(*) FROM scoop.message_event seen
                          WHERE seen.type = 'SEEN' AND seen.coroutine_name = h.handler
                            AND seen.message_id = e.message_id) = 0
                   LIMIT 1
               ) h
               WHERE e.type = 'EMITTED' AND e.part = hierarchy)
    INTO event_count, last_at, is_whole, is_rolled_back, has_failed, is_at_rest
    FROM record r;

    SELECT array_agg(DISTINCT own.message_id) INTO messages
    FROM (
        SELECT e.message_id
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.message_id FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = p.id AND e.type::text = 'EMITTED'
            OFFSET 0
        ) e
      UNION ALL
        SELECT x.message_id
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (SELECT x.message_id FROM scoop.execution x WHERE x.run = p.id OFFSET 0) x
    ) own;

    SELECT m.payload ->> 'hierarchy' INTO about
    FROM scoop.message m
    WHERE m.id = ANY (root_messages) AND starts_with(m.topic, prefix)
      AND m.payload ->> 'hierarchy' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    LIMIT 1;

    SELECT m.topic INTO root_topic FROM scoop.message m WHERE m.id = root_messages[1];
    is_recent := last_at >= scoop.kept_since(CASE
        WHEN is_by_topic AND is_rolled_back THEN scoop.keep_of(root_topic, true, keep_rolled_back)
        WHEN is_by_topic THEN scoop.keep_of(root_topic, false, keep_committed)
        WHEN is_rolled_back THEN keep_rolled_back
        ELSE keep_committed
    END);

    verdict := CASE
        WHEN is_recent IS NOT FALSE THEN 'recent'
        WHEN has_failed THEN 'failed'
        WHEN NOT is_at_rest OR NOT is_whole THEN 'unfinished'
        WHEN EXISTS (
                SELECT FROM unnest(parts) p (id)
                CROSS JOIN LATERAL (
                    SELECT FROM scoop.join_member j WHERE j.run = p.id AND j.joined IS NULL AND j.refused IS NULL OFFSET 0
                ) waiting)
            OR EXISTS (SELECT FROM scoop.join_member j WHERE j.joined = hierarchy)
            OR about IS NOT NULL AND EXISTS (SELECT FROM scoop.run r WHERE r.root = about::uuid) THEN 'needed'
        -- a cancellation may hold the row of any message
        WHEN NOT is_dry_run AND (
                SELECT count(*) FROM (
                    SELECT m.id FROM scoop.message m WHERE m.id = ANY (messages) FOR UPDATE SKIP LOCKED) locked
            ) < cardinality(messages) THEN 'busy'
        ELSE 'deleted'
    END;
    CASE verdict
        WHEN 'recent', 'deleted' THEN
            kept_topic := coalesce(root_topic, '');
            kept_kind := CASE WHEN is_rolled_back THEN 'rolled_back' ELSE 'committed' END;
            kept_from := last_at;
        WHEN 'busy' THEN
            kept_from := clock_timestamp() + interval '1 minute';
        ELSE
    END CASE;
    IF verdict <> 'deleted' THEN
        event_count := 0;
        RETURN;
    END IF;
    -- The ids of messages with unique keys follow from these: they are of version 5.
    keys_until := last_at + least(scoop.keep_keys_of(root_topic), 3.2e10) * interval '1 second';
    SELECT array_agg(m.id) INTO kept_keys
    FROM unnest(root_messages) m (id)
    WHERE substr(m.id::text, 15, 1) = '5' AND keys_until > clock_timestamp();
    IF is_dry_run THEN
        SELECT count(*) INTO message_count
        FROM scoop.message m
        WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
          AND (SELECT count(*) FROM scoop.entity_event v WHERE v.message_id = m.id) = 0;
        RETURN;
    END IF;
    DELETE FROM scoop.message_event e WHERE scoop.run_id(e.cooperation_lineage) = ANY (parts);
    GET DIAGNOSTICS event_count = ROW_COUNT;
    DELETE FROM scoop.return_value v WHERE scoop.run_id(v.cooperation_lineage) = ANY (parts);
    DELETE FROM scoop.execution x WHERE x.run = ANY (parts);
    DELETE FROM scoop.begun_step b WHERE b.run = ANY (parts);
    DELETE FROM scoop.intervention i WHERE i.root = hierarchy;
    DELETE FROM scoop.repeated_failure f WHERE f.root = hierarchy;
    DELETE FROM scoop.rollback_failure f WHERE f.root = hierarchy;
    DELETE FROM scoop.join_member j WHERE j.run = ANY (parts);
    DELETE FROM scoop.redelivery d WHERE d.message_id = ANY (messages);
    DELETE FROM scoop.kept_hierarchy k WHERE k.root = hierarchy;
    INSERT INTO scoop.kept_key (message_id, until)
    SELECT k.id, keys_until FROM unnest(kept_keys) k (id)
    ON CONFLICT ON CONSTRAINT kept_key_pkey DO UPDATE SET until = excluded.until;
    UPDATE scoop.message m SET payload = 'null' WHERE m.id = ANY (kept_keys);
    DELETE FROM scoop.message m
    WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
      AND (SELECT count(*) FROM scoop.entity_event v WHERE v.message_id = m.id) = 0;
    GET DIAGNOSTICS message_count = ROW_COUNT;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune (uuid, float8, float8, boolean, boolean) FROM PUBLIC;

-- The next hierarchies that may be due, for this worker: first those that were kept and are due now, then those whose launch
-- comes next in the order of the ids of events. Returns no list if another worker deletes. `next_event` is the place after
-- them; `is_more`, whether there may be more; `behind`, for how many seconds the oldest of all that are due has been so.
--
-- Launches are passed when the shortest of all times is over. A hierarchy that is kept for longer is remembered. So each
-- event is read once, and each hierarchy looked at a few times, regardless of how many are kept. The place also stays an hour
-- behind the oldest open transaction, and does not pass ids of later times than now: an event that becomes visible later would
-- not be read. The hour is for the difference of the clocks that made two ids, and for the time until their rows were written.
-- The oldest open transaction has no time that all roles can read. So each look remembers its time with the next
-- transaction, until all before that one have ended. A worker without an archive
-- leaves remembered ones alone whose topic needs one. Those that could not be deleted come after all others.
-- Locks: the row of retention; does not wait for it.
CREATE FUNCTION scoop.retention_next(
    worker uuid, keep_committed float8, keep_rolled_back float8, max_count bigint, has_archive boolean,
    OUT roots uuid[], OUT next_event uuid, OUT is_more boolean, OUT behind float8)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    page_size CONSTANT int := 1000;
    -- An event with a later id would end the search for good. The ids of programs begin with their time.
    ids_end CONSTANT uuid := (
        lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    -- before this transaction has a number, which would be open itself
    open_from CONSTANT xid8 := pg_snapshot_xmin(pg_current_snapshot());
    next_transaction CONSTANT xid8 := pg_snapshot_xmax(pg_current_snapshot());
    ended timestamptz;
    before timestamptz;
    event record;
    event_count int := 0;
BEGIN
    is_more := false;
    behind := 0;
    -- A settlement holds the lock, however long it takes.
    PERFORM FROM scoop.retention r WHERE r.is_only FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A worker that died keeps others waiting for so long. No worker takes the place for ten minutes: the clock was set back then.
    UPDATE scoop.retention r SET
        taken_by = worker, taken_until = clock_timestamp() + interval '5 minutes',
        complete_until = CASE WHEN open_from >= r.sampled_transaction AND r.sampled_at <= clock_timestamp()
                              THEN r.sampled_at ELSE r.complete_until END,
        (sampled_at, sampled_transaction) = (
            SELECT CASE WHEN sample.is_over THEN transaction_timestamp() ELSE r.sampled_at END,
                   CASE WHEN sample.is_over THEN next_transaction ELSE r.sampled_transaction END
            -- after the restore of a dump, the number may be that of a transaction to come
            FROM (SELECT r.sampled_transaction <= open_from OR r.sampled_transaction > next_transaction
                         OR r.sampled_at > clock_timestamp() AS is_over) AS sample)
    WHERE r.is_only
      AND (r.taken_by = worker
           OR (r.taken_until >= clock_timestamp() AND r.taken_until < clock_timestamp() + interval '10 minutes') IS NOT TRUE)
    RETURNING r.after_event, r.complete_until INTO next_event, ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A time to come says nothing of open transactions. In a range that allows the calculation, as the row may have an infinite time.
    ended := greatest('0001-01-01 00:00+00', CASE WHEN ended <= clock_timestamp() THEN ended END);

    WITH RECURSIVE lane (topic, kind) AS (
        (SELECT k.topic, k.kind FROM scoop.kept_hierarchy k ORDER BY k.topic, k.kind LIMIT 1)
      UNION ALL
        SELECT following.topic, following.kind
        FROM lane
        CROSS JOIN LATERAL (
            SELECT k.topic, k.kind FROM scoop.kept_hierarchy k
            WHERE (k.topic, k.kind) > (lane.topic, lane.kind)
            ORDER BY k.topic, k.kind LIMIT 1
        ) following
    )
    SELECT coalesce(array_agg(due.root), '{}'), coalesce(max(due.behind), 0) INTO roots, behind
    FROM (
        SELECT k.root, extract(epoch FROM times.before - greatest(k.since, '0001-01-01 00:00+00')) AS behind
        FROM lane
        CROSS JOIN LATERAL (
            SELECT CASE lane.kind
                WHEN 'committed' THEN scoop.kept_since(scoop.keep_of(lane.topic, false, keep_committed))
                WHEN 'rolled_back' THEN scoop.kept_since(scoop.keep_of(lane.topic, true, keep_rolled_back))
                ELSE clock_timestamp() END AS before
            OFFSET 0
        ) times
        CROSS JOIN LATERAL (
            SELECT k.root, k.since FROM scoop.kept_hierarchy k
            WHERE k.topic = lane.topic AND k.kind = lane.kind AND k.since < times.before
            ORDER BY k.since LIMIT max_count
        ) k
        WHERE lane.kind <> 'undeletable'
          AND (has_archive OR lane.kind = 'later' OR NOT scoop.needs_archive(lane.topic))
        LIMIT max_count
    ) due;

    SELECT scoop.kept_since(least(keep_committed, keep_rolled_back, min(t.committed), min(t.rolled_back))) INTO before
    FROM scoop.keep_time t;
    behind := greatest(behind, extract(epoch FROM before - (
        SELECT greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', e.created_at))
        FROM scoop.message_event e WHERE e.id > next_event AND e.id < ids_end ORDER BY e.id LIMIT 1)));
    -- the least of all times to keep, which is an hour
    before := least(before, scoop.kept_since(3600) - (clock_timestamp() - ended));
    IF cardinality(roots) < max_count THEN
        FOR event IN
            SELECT e.id, greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', e.created_at)) AS created_at,
                   CASE WHEN e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1
                        THEN e.cooperation_lineage[1] END AS root
            FROM scoop.message_event e
            WHERE e.id > next_event AND e.id < ids_end
            ORDER BY e.id
            LIMIT page_size
        LOOP
            -- a time in the future, by a wrong clock, is not waited for
            EXIT WHEN event.created_at BETWEEN before AND clock_timestamp() + interval '1 day';
            event_count := event_count + 1;
            next_event := event.id;
            IF event.root IS NOT NULL THEN
                roots := roots || event.root;
                EXIT WHEN cardinality(roots) >= max_count;
            END IF;
        END LOOP;
    END IF;
    IF cardinality(roots) < max_count AND event_count < page_size THEN
        roots := roots || ARRAY(
            SELECT k.root FROM scoop.kept_hierarchy k
            WHERE k.topic = '' AND k.kind = 'undeletable' AND k.since < clock_timestamp()
            ORDER BY k.since LIMIT max_count - cardinality(roots));
    END IF;
    is_more := cardinality(roots) >= max_count OR event_count = page_size;
    IF NOT is_more AND cardinality(roots) = 0 THEN
        UPDATE scoop.retention r SET taken_until = NULL, after_event = greatest(r.after_event, next_event) WHERE r.is_only;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_next (uuid, float8, float8, bigint, boolean) FROM PUBLIC;

-- Deletes those of these hierarchies that are due, remembers the others, and moves the place. Deletes only hierarchies that
-- are also in `archived`; one that is due and not in it is looked at again after `retry_after` seconds. Without such a list,
-- of a worker without an archive, only those are deleted whose topic needs none. The verdict of the others is `unarchived`.
-- Does nothing, and returns no verdict, if another worker has taken the place meanwhile.
-- Locks: the row of retention, so that no other worker takes the place before the commit; then those of scoop.prune, of
-- each hierarchy.
CREATE FUNCTION scoop.retention_settle(
    worker uuid, keep_committed float8, keep_rolled_back float8, roots uuid[], archived uuid[], next_event uuid,
    is_last boolean, retry_after float8)
RETURNS TABLE (verdict text, message_count bigint, event_count bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked record;
    pruned record;
BEGIN
    PERFORM FROM scoop.retention r WHERE r.is_only AND r.taken_by = worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR asked IN
        SELECT u.root,
               CASE WHEN archived IS NOT NULL THEN u.root = ANY (archived)
                    ELSE NOT scoop.needs_archive(scoop.root_topic(u.root)) END AS is_archived
        FROM unnest(roots) u (root) GROUP BY u.root ORDER BY u.root
    LOOP
        SELECT * INTO pruned FROM scoop.prune(asked.root, keep_committed, keep_rolled_back, true, NOT asked.is_archived);
        IF pruned.verdict = 'deleted' AND NOT asked.is_archived THEN
            pruned.verdict := 'unarchived';
            pruned.message_count := 0;
            pruned.event_count := 0;
            IF archived IS NOT NULL THEN
                pruned.kept_topic := '';
                pruned.kept_kind := 'later';
                pruned.kept_from := clock_timestamp() + retry_after * interval '1 second';
            END IF;
        END IF;
        IF pruned.verdict = 'absent' THEN
            DELETE FROM scoop.kept_hierarchy k WHERE k.root = asked.root;
        ELSIF pruned.verdict <> 'deleted' THEN
            INSERT INTO scoop.kept_hierarchy AS kept (root, topic, kind, since)
            VALUES (asked.root, pruned.kept_topic, pruned.kept_kind, pruned.kept_from)
            ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET
                topic = excluded.topic, kind = excluded.kind, since = excluded.since;
        END IF;
        verdict := pruned.verdict;
        message_count := pruned.message_count;
        event_count := pruned.event_count;
        RETURN NEXT;
    END LOOP;
    UPDATE scoop.retention r SET
        after_event = greatest(r.after_event, next_event),
        taken_until = CASE WHEN NOT is_last THEN clock_timestamp() + interval '5 minutes' END
    WHERE r.is_only;
END $$;
REVOKE EXECUTE ON FUNCTION
    scoop.retention_settle (uuid, float8, float8, uuid[], uuid[], uuid, boolean, float8) FROM PUBLIC;

-- Remembers a hierarchy whose deletion or archive failed, to be looked at again after `retry_after` seconds, and after a further
-- failure twice as long, up to 32 times. Returns the topic of its first message.
-- Locks: its row of kept_hierarchy.
CREATE FUNCTION scoop.retention_put_off(hierarchy uuid, why text, retry_after float8) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO scoop.kept_hierarchy AS kept (root, topic, kind, since, failures, error)
    VALUES (hierarchy, '', 'undeletable', clock_timestamp() + retry_after * interval '1 second', 1, left(why, 1000))
    ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET
        topic = '', kind = 'undeletable', failures = greatest(0, least(kept.failures, 1000)) + 1, error = left(why, 1000),
        since = clock_timestamp() + retry_after * power(2, greatest(0, least(kept.failures, 5))) * interval '1 second';
    RETURN scoop.root_topic(hierarchy);
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_put_off (uuid, text, float8) FROM PUBLIC;

-- Deletes signals that reach no run any more since `older_than`, which counts as an hour at least: delivered ones, and
-- those that no run awaited in time. Returns how many.
-- Locks: the deleted rows; skips locked ones.
CREATE FUNCTION scoop.prune_signals(older_than interval, limit_to bigint, is_dry_run boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before CONSTANT timestamptz := clock_timestamp() - greatest(older_than, interval '1 hour');
    pruned bigint;
BEGIN
    IF is_dry_run THEN
        SELECT count(*) INTO pruned
        FROM scoop.signal s WHERE coalesce(s.delivered_at, s.kept_until) < before;
    ELSE
        DELETE FROM scoop.signal s
        WHERE s.id = ANY (ARRAY(
            SELECT o.id FROM scoop.signal o
            WHERE coalesce(o.delivered_at, o.kept_until) < before
            ORDER BY coalesce(o.delivered_at, o.kept_until)
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS pruned = ROW_COUNT;
    END IF;
    RETURN pruned;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune_signals (interval, bigint, boolean) FROM PUBLIC;

-- Deletes unique keys that are kept and whose time is over, with their messages. Returns how many.
-- Locks: the deleted rows; skips locked ones.
CREATE FUNCTION scoop.prune_keys(limit_to bigint, is_dry_run boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    over uuid[];
BEGIN
    IF is_dry_run THEN
        RETURN (SELECT count(*) FROM scoop.kept_key k WHERE k.until < clock_timestamp());
    END IF;
    WITH deleted AS (
        DELETE FROM scoop.kept_key k
        WHERE k.message_id = ANY (ARRAY(
            SELECT o.message_id FROM scoop.kept_key o
            WHERE o.until < clock_timestamp()
            ORDER BY o.until
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED))
        RETURNING k.message_id
    )
    SELECT array_agg(d.message_id) INTO over FROM deleted d;
    DELETE FROM scoop.message m WHERE m.id = ANY (over);
    RETURN coalesce(cardinality(over), 0);
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune_keys (bigint, boolean) FROM PUBLIC;

-- Deletes all ended pauses but the newest 1,000. SECURITY DEFINER: a role needs no right to delete others.
-- Locks: the deleted rows.
CREATE FUNCTION scoop.trim_ended_pauses() RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM scoop.ended_pause p
    WHERE p.ended_at < (SELECT newer.ended_at FROM scoop.ended_pause newer ORDER BY newer.ended_at DESC OFFSET 999 LIMIT 1)
$$;
REVOKE EXECUTE ON FUNCTION scoop.trim_ended_pauses () FROM PUBLIC;

-- The number of the newest migration. Each later one replaces it.
CREATE FUNCTION scoop.schema_version() RETURNS int LANGUAGE sql IMMUTABLE RETURN 2;
