-- Settles runs in rollback that request the rollback of the messages of a step, and wait for it if there are finished
-- runs. `scoop.settle` has the same rule for all cases.
-- Locks: the rows of run.
-- Arrays with an element for each run: $1 root, $2 run, $3 epoch, $4 the part of the rollback, $5 how many came before
-- it, $6 what the steps returned, $7 whether it replied, $8 the context if that has changed, $9 why they roll back,
-- $10 the id of the event, $11 of how many messages it requests the rollback
-- Arrays with an element for each message: $12 which of the runs requests it, from 1, $13 how many events follow,
-- $14 its id, $15 the id of its event
-- $16 the worker's identifier in events
-- An element for each run again: $17 where in a long history the part is
WITH locked_run AS MATERIALIZED (
    SELECT s.*, r.message_id, r.handler, r.lineage, r.rollback_failed_before,
           CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END AS new_context,
           greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
               + s.tells * interval '1 microsecond' AS last_event_at
    FROM unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::varchar[], $5::int[], $6::jsonb[], $7::bool[], $8::jsonb[],
        $9::jsonb[], $10::uuid[], $11::int[], $17::text[]
    ) WITH ORDINALITY AS s (root, id, epoch, step, suspensions, outputs, replied, context, because, suspended_id, tells,
                            jump, nth)
    JOIN scoop.run r ON r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
    WHERE NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp())
    FOR UPDATE OF r
),
requested AS MATERIALIZED (
    SELECT m.id, m.event, locked_run.last_event_at - m.until_last * interval '1 microsecond' AS at,
           clock_timestamp() + (locked_run.tells - m.until_last) * interval '1 microsecond' AS ready_at,
           locked_run.root, locked_run.id AS parent, locked_run.handler, locked_run.step, locked_run.lineage,
           locked_run.new_context,
           -- a repeated request has the recorded reason
           coalesce(CASE WHEN locked_run.rollback_failed_before THEN (
               SELECT e.exception FROM scoop.message_event e
               WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = m.id
           ) END, locked_run.because) AS because,
           locked_run.last_event_at
    FROM unnest($12::int[], $13::int[], $14::uuid[], $15::uuid[]) AS m (by, until_last, id, event)
    JOIN locked_run ON locked_run.nth = m.by
),
-- the finished runs to roll back: those that handled the message and have not begun to roll back
rollback_runs AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
    SELECT requested.root, scoop.run_id(seen.lineage), requested.parent, seen.lineage, requested.id,
           (SELECT m.topic FROM scoop.message m WHERE m.id = requested.id),
           seen.handler, requested.ready_at, requested.last_event_at,
           true, true, requested.because, clock_timestamp(),
           -- an epoch of the forward path is not valid for the rollback
           (extract(epoch FROM requested.last_event_at) * 1000000)::bigint,
           (extract(epoch FROM requested.last_event_at) * 1000000)::bigint,
           -- its own context, and over it that of the parent now
           nullif(coalesce((
               SELECT e.context FROM scoop.message_event e
               WHERE e.type = 'COMMITTED' AND e.coroutine_name = seen.handler AND e.message_id = requested.id
           ), '{}') || coalesce(requested.new_context, '{}'), '{}')
    FROM requested
    CROSS JOIN LATERAL (
        SELECT e.coroutine_name AS handler, e.cooperation_lineage AS lineage
        FROM scoop.message_event e WHERE e.type = 'SEEN' AND e.message_id = requested.id OFFSET 0
    ) seen
    -- a count, so that this is no join: then it is looked up, one by one
    WHERE (
        SELECT count(*) FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = seen.handler AND e.message_id = requested.id
    ) = 0
    RETURNING parent, handler
),
awaited_children AS (
    SELECT parent, array_agg(DISTINCT handler::text) AS ready_handlers FROM rollback_runs GROUP BY parent
),
updated_run AS (
    UPDATE scoop.run r
    SET state = CASE WHEN awaited_children.parent IS NULL THEN 'running' ELSE 'waiting' END::scoop.run_state,
        owner = CASE WHEN awaited_children.parent IS NULL THEN r.owner END,
        epoch = r.epoch + 1,
        step = locked_run.step, jump = locked_run.jump, definition = NULL, iteration = 0, handler_iteration = NULL,
        suspensions = locked_run.suspensions, outputs = locked_run.outputs, replied = locked_run.replied,
        context = locked_run.new_context, give_up_at = NULL, last_event_at = locked_run.last_event_at,
        attempts = 0, retries = 0, reason = NULL
    FROM locked_run
    LEFT JOIN awaited_children ON awaited_children.parent = locked_run.id
    WHERE r.root = locked_run.root AND r.id = locked_run.id
    RETURNING r.id, locked_run.epoch, r.state::text, r.last_event_at,
        coalesce(awaited_children.ready_handlers, '{}') AS ready_handlers
),
-- a microsecond apart and in order, since participants order events by this time; the rollback of a part of
-- the hierarchy may have been requested before
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, exception,
         context, jump)
    SELECT event, id, 'ROLLBACK_EMITTED'::scoop.message_event_type, handler, $16, step, lineage, at, because,
           new_context, NULL
    FROM requested
    UNION ALL
    SELECT suspended_id, message_id, 'SUSPENDED', handler, $16, step, lineage, last_event_at, NULL, new_context, jump
    FROM locked_run
    ON CONFLICT (message_id, type) WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED') DO NOTHING
)
SELECT id, epoch, state, last_event_at, false AS overdue, ready_handlers FROM updated_run
