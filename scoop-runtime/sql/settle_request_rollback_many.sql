-- Settles runs in rollback that request the rollback of the messages of a step, and wait for it if there are finished
-- runs. `scoop.settle` has the same rule for all cases.
-- Locks: the rows of run.
-- Arrays with an element for each run: $1 root, $2 run, $3 epoch, $4 the part of the rollback, $5 how many came before
-- it, $6 what the steps returned, $7 whether it replied, $8 the context if that has changed, $9 why they roll back,
-- $10 the id of the event, $11 how many messages it tells
-- Arrays with an element for each message: $12 which of the runs tells it, from 1, $13 how many events follow,
-- $14 its id, $15 the id of its event
-- $16 the worker's identifier in events
-- An element for each run again: $17 where in a long history the part is
WITH held AS MATERIALIZED (
    SELECT s.*, r.message_id, r.handler, r.lineage, r.failed_before,
           CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END AS knows,
           greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
               + s.tells * interval '1 microsecond' AS last_event_at
    FROM unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::varchar[], $5::int[], $6::jsonb[], $7::bool[], $8::jsonb[], $9::jsonb[],
        $10::uuid[], $11::int[], $17::text[]
    ) WITH ORDINALITY AS s (root, id, epoch, step, suspensions, outputs, replied, context, because, suspended_id, tells,
                            jump, nth)
    JOIN scoop.run r ON r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
    WHERE (r.gives_up OR r.give_up_at <= clock_timestamp()) IS NOT TRUE
    FOR UPDATE OF r
),
told AS MATERIALIZED (
    SELECT m.id, m.event, held.last_event_at - m.until_last * interval '1 microsecond' AS at,
           clock_timestamp() + (held.tells - m.until_last) * interval '1 microsecond' AS ready_at,
           held.root, held.id AS parent, held.handler, held.step, held.lineage, held.knows,
           -- a repeated request has the recorded reason
           coalesce(CASE WHEN held.failed_before THEN (
               SELECT e.exception FROM scoop.message_event e
               WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = m.id
           ) END, held.because) AS because,
           held.last_event_at
    FROM unnest($12::int[], $13::int[], $14::uuid[], $15::uuid[]) AS m (by, until_last, id, event)
    JOIN held ON held.nth = m.by
),
-- the finished runs to roll back: those that handled the message and have not begun to roll back
sent_back AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         backward, told, failure, undoing_since, epoch, first_epoch, context)
    SELECT told.root, scoop.run_id(seen.lineage), told.parent, seen.lineage, told.id,
           (SELECT m.topic FROM scoop.message m WHERE m.id = told.id),
           seen.handler, told.ready_at, told.last_event_at,
           true, true, told.because, clock_timestamp(),
           -- an epoch of the way forward is not valid for the rollback
           (extract(epoch FROM told.last_event_at) * 1000000)::bigint,
           (extract(epoch FROM told.last_event_at) * 1000000)::bigint,
           -- its own context, and over it that of the parent now
           nullif(coalesce((
               SELECT e.context FROM scoop.message_event e
               WHERE e.type = 'COMMITTED' AND e.coroutine_name = seen.handler AND e.message_id = told.id
           ), '{}') || coalesce(told.knows, '{}'), '{}')
    FROM told
    CROSS JOIN LATERAL (
        SELECT e.coroutine_name AS handler, e.cooperation_lineage AS lineage
        FROM scoop.message_event e WHERE e.type = 'SEEN' AND e.message_id = told.id OFFSET 0
    ) seen
    -- a count, so that this is no join: then it is looked up, one by one
    WHERE (
        SELECT count(*) FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = seen.handler AND e.message_id = told.id
    ) = 0
    RETURNING parent, handler
),
waits AS (
    SELECT parent, array_agg(DISTINCT handler::text) AS started FROM sent_back GROUP BY parent
),
kept AS (
    UPDATE scoop.run r
    SET state = CASE WHEN waits.parent IS NULL THEN 'running' ELSE 'waiting' END::scoop.run_state,
        owner = CASE WHEN waits.parent IS NULL THEN r.owner END,
        epoch = r.epoch + 1,
        step = held.step, jump = held.jump, definition = NULL, iteration = 0, handler_iteration = NULL,
        suspensions = held.suspensions, outputs = held.outputs, replied = held.replied, context = held.knows,
        give_up_at = NULL, last_event_at = held.last_event_at,
        attempts = 0, retries = 0, reason = NULL
    FROM held
    LEFT JOIN waits ON waits.parent = held.id
    WHERE r.root = held.root AND r.id = held.id
    RETURNING r.id, held.epoch, r.state::text, r.last_event_at, coalesce(waits.started, '{}') AS started
),
-- a microsecond apart and in order, since participants order events by this time; a part of the hierarchy may
-- have been told before, on request
recorded AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, exception,
         context, jump)
    SELECT event, id, 'ROLLBACK_EMITTED'::scoop.message_event_type, handler, $16, step, lineage, at, because, knows, NULL
    FROM told
    UNION ALL
    SELECT suspended_id, message_id, 'SUSPENDED', handler, $16, step, lineage, last_event_at, NULL, knows, jump
    FROM held
    ON CONFLICT (message_id, type) WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED') DO NOTHING
)
SELECT id, epoch, state, last_event_at, false AS overdue, started FROM kept
