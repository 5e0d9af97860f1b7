SET LOCAL search_path = pg_catalog, pg_temp;

-- Persists a move of a run that the shorter statements (`sql/settle/`) do not cover. As a function, it spends nothing
-- on absent parts. Its own settings give it one plan on every connection: lookups by index, independent of the tables'
-- contents, and never planned anew.

-- Applies a settlement to its run, if that still has the epoch of the move, and raises the epoch; otherwise does
-- nothing. So a run that another worker took over is unchanged, and a settlement that is sent twice is applied once. A
-- move other than a failure is not applied either if the run has to give up by now.
-- Locks: the row of the run, then those of its failed children, and the ends of the children that are undone.
-- `worker` is its identifier in events. `claim` is what `scoop_run.claim` must be in this
-- transaction: null outside the transaction of a step. The advisory locks of the session of a step end here.
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
    is_undecided boolean; -- a strategy has to decide whom it waits for
    rollback_handlers text[];
    last_event timestamptz;
BEGIN
    IF claim IS NOT NULL
        AND (current_setting('scoop_run.claim', true) IS DISTINCT FROM claim OR pg_advisory_unlock_all() IS NULL) THEN
        RETURN;
    END IF;
    SELECT * INTO s FROM jsonb_to_record(settlement) AS s (
        root uuid, id uuid, epoch bigint, ends text,
        step varchar, jump varchar, definition int, iteration int, handler_iteration int, suspensions int,
        completions jsonb, outputs jsonb, rolling_back boolean, begins_rollback boolean, failure jsonb,
        rollback_failure jsonb, forgets text, event_count int, events jsonb, emissions jsonb, rollback_requests jsonb,
        rollback_cause jsonb, return_values jsonb, replied boolean, context jsonb, deadlines timestamptz[],
        wait jsonb, signals jsonb, as_new jsonb, may_give_up boolean, stored boolean, failed text
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
    turned := CASE WHEN s.begins_rollback THEN clock_timestamp() END;
    in_rollback := s.begins_rollback OR locked_run.rollback_since IS NOT NULL;
    is_undecided := (s.wait ? 'messages') IS TRUE;
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
                   -- a deadline before the due time wins; not in the past: claims may have gone on from there
                   greatest(least(coalesce(e.due, clock_timestamp() + e.at * interval '1 microsecond'), give_up.at),
                            clock_timestamp()),
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
        PERFORM FROM jsonb_to_recordset(s.emissions) AS e (detached_root uuid)
        CROSS JOIN LATERAL scoop.keep_unhandled(e.detached_root)
        WHERE e.detached_root IS NOT NULL
          AND (SELECT count(*) FROM scoop.run r WHERE r.root = e.detached_root) = 0;
    END IF;

    -- Runs that have to be undone: those that handled the message and have committed. Their rows move back.
    IF s.rollback_requests IS NOT NULL THEN
        WITH undoable AS MATERIALIZED (
            SELECT ended.*, requested.at
            FROM jsonb_to_recordset(s.rollback_requests) AS requested (message_id uuid, at int)
            CROSS JOIN LATERAL (
                SELECT scoop.run_id(e.cooperation_lineage) AS id FROM scoop.message_event e
                WHERE e.type = 'SEEN' AND e.message_id = requested.message_id OFFSET 0
            ) seen
            -- by key, even if the table was empty when it was analysed
            CROSS JOIN LATERAL (
                SELECT e.ctid AS place, e.*
                FROM (SELECT) AS always
                LEFT JOIN scoop.ended_run e ON e.root = locked_run.root AND e.id = seen.id
                WHERE CASE WHEN e.id IS NULL THEN NOT scoop.is_in_run(locked_run.root, seen.id)
                           ELSE e.outcome = 'committed' END
                OFFSET 0
            ) ended
        ),
        unended AS (
            DELETE FROM scoop.ended_run e WHERE e.ctid = ANY (ARRAY(SELECT u.place FROM undoable u))
        ),
        rollback_runs AS (
            INSERT INTO scoop.run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
                 queued_at, began_at, rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
            SELECT u.root, u.id, locked_run.id, u.lineage, u.message_id, u.topic, u.handler,
                   clock_timestamp() + u.at * interval '1 microsecond',
                   last_event, u.queued_at, u.began_at,
                   true, true,
                   -- a repeated request has the recorded reason
                   coalesce(CASE WHEN locked_run.rollback_failure IS NOT NULL THEN (
                       SELECT e.exception FROM scoop.message_event e
                       WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = u.message_id
                   ) END, s.rollback_cause),
                   clock_timestamp(),
                   -- higher than any forward epoch, to fence out old owners
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   -- its own last context, overlaid with the parent's current one
                   nullif(coalesce(u.context, '{}') || coalesce(new_context, '{}'), '{}')
            FROM undoable u
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
    IF s.as_new IS NOT NULL THEN
        INSERT INTO scoop.message (id, topic, payload)
        VALUES ((s.as_new ->> 'message')::uuid, locked_run.topic, coalesce(s.as_new -> 'payload', 'null'));
        INSERT INTO scoop.execution (root, run, number, message_id, suspensions, began_at)
        VALUES (locked_run.root, locked_run.id, (s.as_new ->> 'number')::int, (s.as_new ->> 'message')::uuid,
                s.suspensions, last_event);
    END IF;
    IF s.ends <> 'failed' THEN
        INSERT INTO scoop.ended_run
            (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context,
             queued_at, began_at, ended_at)
        VALUES (
            locked_run.root, locked_run.id, locked_run.parent, locked_run.lineage, locked_run.message_id, locked_run.topic,
            locked_run.handler,
            CASE WHEN s.rolling_back THEN 'rolled_back' ELSE 'committed' END::scoop.run_outcome,
            s.failure, locked_run.rollback_failure, new_context, locked_run.queued_at, locked_run.began_at, last_event);
    END IF;
    -- the parent may have gone on without it since its claim
    IF s.ends = 'unnoted' OR s.ends = 'noted' AND locked_run.parent IS NULL THEN
        DELETE FROM scoop.run r WHERE r.root = locked_run.root AND r.id = locked_run.id;
        state := 'ended';
        overdue := locked_run.give_up_at <= clock_timestamp();
    ELSIF s.ends = 'failed' THEN
        UPDATE scoop.run r
        SET state = 'failed', owner = NULL, ready_at = last_event, epoch = r.epoch + 1,
            step = s.step, suspended = ROW(NULL, NULL, NULL, s.handler_iteration, NULL)::scoop.suspended,
            completions = NULL, outputs = NULL, awaited = NULL, signalled_by = NULL,
            rolling_back = true, failure = s.failure, rollback_failure = s.rollback_failure, context = new_context,
            giving_up = false, give_up_at = NULL, rollback_since = coalesce(turned, r.rollback_since),
            last_event_at = last_event,
            newest_execution = NULL, tries = NULL, reason = NULL
        WHERE r.root = locked_run.root AND r.id = locked_run.id
        RETURNING r.state::text INTO state;
    ELSE
        UPDATE scoop.run r
        SET state = CASE WHEN s.ends = 'noted' THEN 'ended' WHEN is_undecided THEN 'running' WHEN has_children THEN 'waiting'
                         WHEN wakes_at IS NOT NULL THEN 'ready' ELSE 'running'
                    END::scoop.run_state,
            owner = CASE WHEN s.ends IS NULL AND (is_undecided OR NOT has_children AND wakes_at IS NULL) THEN r.owner END,
            ready_at = CASE WHEN is_undecided THEN r.ready_at ELSE coalesce(wakes_at, r.ready_at) END,
            awaited = CASE WHEN NOT is_undecided THEN scoop.awaited_signal(s.wait) END,
            signalled_by = NULL,
            epoch = r.epoch + 1,
            step = s.step, suspended = ROW(
                s.jump, s.definition, s.iteration, s.handler_iteration, CASE WHEN is_undecided THEN s.wait END)::scoop.suspended,
            suspensions = s.suspensions, completions = s.completions, outputs = s.outputs,
            rolling_back = s.rolling_back, failure = s.failure,
            context = new_context, replied = s.replied,
            giving_up = r.giving_up AND NOT s.begins_rollback,
            give_up_at = due,
            rollback_since = coalesce(turned, r.rollback_since),
            last_event_at = last_event,
            newest_execution = CASE WHEN s.as_new IS NOT NULL THEN
                            ROW((s.as_new ->> 'number')::int, last_event, (s.as_new ->> 'message')::uuid)::scoop.newest_execution
                        WHEN NOT s.rolling_back THEN r.newest_execution END,
            -- a new execution may be of another definition
            reserved_for = CASE WHEN s.as_new IS NULL THEN r.reserved_for ELSE 0 END,
            tries = NULL, reason = NULL
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

    -- Not if a run waits for it; nor of one without which its launcher has gone on, since it was cancelled then.
    IF s.failed IS NOT NULL AND locked_run.parent IS NULL
        AND (s.failed <> 'rolled_back' OR cardinality(locked_run.lineage) = 2 OR locked_run.rollback_requested
             OR s.failure ->> 'type' <> 'GaveUpException') THEN
        ready_handlers := ready_handlers || scoop.send_failed(
            s.failed, locked_run.root, locked_run.id, locked_run.handler, locked_run.message_id, last_event,
            CASE WHEN s.ends = 'failed' THEN s.step END, s.failure, s.rollback_failure);
    END IF;

    IF s.return_values IS NOT NULL THEN
        INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
        SELECT locked_run.lineage, locked_run.handler, returned.name, coalesce(returned.value, 'null')
        FROM jsonb_to_recordset(s.return_values) AS returned (name varchar, value jsonb);
    END IF;

    IF s.signals IS NOT NULL THEN
        INSERT INTO scoop.signal (id, name, key, payload, kept_until, traceparent)
        SELECT sent.id, sent.name, sent.key, coalesce(sent.payload, 'null'),
               least(clock_timestamp() + make_interval(secs => sent.retention), '9999-12-31 00:00+00'), sent.traceparent
        FROM jsonb_to_recordset(s.signals) AS sent
            (id uuid, name varchar, key varchar, payload jsonb, retention float8, traceparent varchar);
    END IF;

    IF s.forgets IS NOT NULL THEN
        DELETE FROM scoop.run child
        WHERE child.root = locked_run.root AND child.parent = locked_run.id AND child.state = 'ended';
    END IF;
    -- It goes on without the runs whose failed rollback it accepts: nobody waits for them any more.
    IF s.forgets = 'all' THEN
        UPDATE scoop.run child SET parent = NULL
        WHERE child.root = locked_run.root AND child.parent = locked_run.id AND child.state = 'failed';
    END IF;
    RETURN NEXT;
END $$;

-- The signal that a run awaits by this wait, if it awaits one.
CREATE FUNCTION scoop.awaited_signal(wait jsonb) RETURNS scoop.awaited LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN wait ? 'signal' THEN
    ROW(wait #>> '{signal,name}', wait #>> '{signal,key}', NULL)::scoop.awaited END;

-- Applies what strategies have decided about the messages that a run waits for, if that still has this epoch, and raises the epoch. The
-- run goes on without the handlers of the messages `gone_on`: those that failed are forgotten, and the others have no parent any more. It
-- then waits for the others: as without a strategy, if `children` is null; or until at most so many children have not ended, or `until`.
-- Runs of the messages `closed` that have not begun are dropped. The messages `late` go to the handlers that have registered since.
-- Returns the handlers with a new run; null if that took no effect.
-- Locks: the row of the run, then those of its children that it does not wait for any more.
CREATE FUNCTION scoop.decide_wait(of_root uuid, run uuid, of_epoch bigint, decided jsonb) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d record;
    launcher scoop.run;
    wait_until timestamptz;
    late_handlers text[] := '{}';
    forgotten uuid[];
BEGIN
    SELECT * INTO d FROM jsonb_to_record(decided) AS d (
        gone_on uuid[], closed uuid[], late jsonb, wait jsonb, children int, until timestamptz);
    SELECT r.* INTO launcher FROM scoop.run r
    WHERE r.root = of_root AND r.id = run AND r.epoch = of_epoch AND r.state = 'running'
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF d.closed <> '{}' THEN
        WITH dropped AS (
            DELETE FROM scoop.run child
            WHERE child.root = of_root AND child.parent = run AND child.message_id = ANY (d.closed)
              AND child.epoch = child.unclaimed_epoch
            RETURNING child AS run
        )
        INSERT INTO scoop.ended_run SELECT e.* FROM dropped CROSS JOIN LATERAL scoop.dropped_run(dropped.run) e;
    END IF;
    -- a cancellation would not mark them
    IF d.late <> '[]' AND NOT launcher.giving_up THEN
        WITH delivered AS (
            INSERT INTO scoop.run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
            SELECT of_root, h.run, launcher.id, launcher.lineage || h.run, late.message, h.topic, h.handler,
                   clock_timestamp(), launcher.last_event_at, e.context,
                   late.give_up_at
            FROM jsonb_to_recordset(d.late) AS late (message uuid, give_up_at timestamptz)
            JOIN scoop.message m ON m.id = late.message
            JOIN scoop.message_event e ON e.type = 'EMITTED' AND e.message_id = late.message
            CROSS JOIN LATERAL (
                SELECT h.topic, h.handler, scoop.gen_uuid_v7() AS run
                FROM scoop.handler h
                WHERE h.topic = m.topic AND h.retired_at IS NULL
                  AND NOT EXISTS (
                      SELECT FROM scoop.message_event s
                      WHERE s.type = 'SEEN' AND s.message_id = late.message
                        AND s.coroutine_name = ANY (h.handler::text || coalesce(h.was, '{}')))
                  AND NOT EXISTS (
                      SELECT FROM scoop.run child
                      WHERE child.root = of_root AND child.parent = launcher.id AND child.message_id = late.message
                        AND child.handler = ANY (h.handler::text || coalesce(h.was, '{}')))
                OFFSET 0
            ) h
            RETURNING handler
        )
        SELECT coalesce(array_agg(handler::text), '{}') INTO late_handlers FROM delivered;
        d.children := d.children + cardinality(late_handlers);
    END IF;
    IF d.gone_on <> '{}' THEN
        WITH released AS (
            UPDATE scoop.run child SET parent = NULL
            WHERE child.root = of_root AND child.parent = run AND child.message_id = ANY (d.gone_on)
            RETURNING child.id, child.state
        )
        SELECT array_agg(released.id) INTO forgotten FROM released WHERE released.state = 'ended';
        DELETE FROM scoop.run child WHERE child.root = of_root AND child.id = ANY (forgotten);
    END IF;
    -- as in scoop.settle
    wait_until := CASE WHEN d.children IS NULL THEN (d.wait ->> 'until')::timestamptz
                       ELSE coalesce(d.until, '9999-12-31 23:59:59.999999+00') END;
    IF d.children IS NULL AND d.wait ? 'signal' THEN
        wait_until := coalesce(wait_until, '9999-12-31 23:59:59.999999+00');
    END IF;
    UPDATE scoop.run r
    SET state = CASE WHEN d.children IS NULL THEN 'waiting' ELSE 'ready' END::scoop.run_state,
        owner = NULL,
        ready_at = CASE WHEN r.giving_up THEN clock_timestamp() WHEN wait_until IS NULL THEN r.ready_at
                        ELSE greatest(least(wait_until, r.give_up_at), clock_timestamp()) END,
        awaited = CASE WHEN d.children IS NOT NULL THEN ROW(NULL, NULL, d.children)::scoop.awaited
                       WHEN NOT r.giving_up THEN scoop.awaited_signal(d.wait) END,
        suspended = ROW(
            (r.suspended).jump, (r.suspended).definition, (r.suspended).iteration, (r.suspended).handler_iteration,
            CASE WHEN d.wait ? 'messages' THEN d.wait END)::scoop.suspended,
        tries = NULL, reason = NULL, epoch = r.epoch + 1
    WHERE r.root = of_root AND r.id = run;
    RETURN late_handlers;
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
    SELECT c.id, c.rollback_since, c.failure, own.rollback_failure, c.rollback_requested, own.has_failed_rollback,
           why.type, why.message,
           row_number() OVER (
               PARTITION BY own.has_failed_rollback, c.rollback_requested, why.type, why.message
               ORDER BY c.rollback_since, c.id) AS nth
    FROM scoop.run c
    CROSS JOIN LATERAL (
        SELECT c.state = 'failed' AS has_failed_rollback, CASE WHEN c.state = 'failed' THEN c.rollback_failure END AS rollback_failure
        OFFSET 0
    ) own
    CROSS JOIN LATERAL (
        SELECT coalesce(own.rollback_failure, c.failure) ->> 'type' AS type,
               left(coalesce(own.rollback_failure, c.failure) ->> 'message', 160) AS message
        OFFSET 0
    ) why
    WHERE c.root = in_root AND c.parent = of_run AND c.state IN ('ended', 'failed')
),
listed AS MATERIALIZED (
    SELECT * FROM failed ORDER BY NOT has_failed_rollback, nth, rollback_since, id LIMIT 50
),
-- each of these has one like it in the list, or none of them has
kinds AS MATERIALIZED (
    SELECT DISTINCT has_failed_rollback, rollback_requested, type, message FROM listed
),
more AS (
    SELECT has_failed_rollback, rollback_requested, kinds.type, kinds.message, count(*) AS count
    FROM failed LEFT JOIN kinds USING (has_failed_rollback, rollback_requested, type, message)
    WHERE failed.id NOT IN (SELECT id FROM listed)
    GROUP BY 1, 2, 3, 4
)
SELECT jsonb_build_object(
    'children', coalesce((
        SELECT jsonb_agg(
            jsonb_build_object(
                'rolled_back', failure, 'rollback_failed', rollback_failure, 'rollback_requested', rollback_requested)
            ORDER BY rollback_since, id)
        FROM listed), '[]'),
    'more', coalesce((SELECT jsonb_agg(to_jsonb(more) ORDER BY more.count DESC) FROM more), '[]'))
$$;
