-- Settles runs whose steps succeeded and launched messages that are due at once, outside the transactions of the steps.
-- A run waits if it has children. `scoop.settle` has the same rule for all cases, settle_launch_one.sql for one run.
-- Locks: the rows of run.
-- Arrays with an element for each run: $1 root, $2 run, $3 epoch, $4 to $8 the step, where it jumps, how often it
-- was repeated, how often the children's failures were handled, and how many came before it, $9 what the
-- steps returned, $10 whether it replied, $11 the context if that has changed, $12 and $13 what the step returned,
-- $14 the id of the event, $15 how many messages it launched
-- Arrays with an element for each message: $16 which of the runs launched it, from 1, $17 how many events follow it,
-- $18 its id, $19 its topic, $20 its payload, $21 its context if that is not the run's, $22 the id of its event,
-- $23 the id of the run of its first handler
-- $24 the worker's identifier in events
-- Arrays with an element for each run again: $25 the step that was chosen to run next, $26 the definition under which
-- the step completed, $27 how often each step completed
WITH locked_run AS MATERIALIZED (
    SELECT s.*, r.message_id, r.handler, r.lineage, r.rollback_since,
           CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END AS new_context,
           greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
               + s.launches * interval '1 microsecond' AS last_event_at
    FROM unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::varchar[], $5::int[], $6::int[], $7::int[], $8::int[],
        $9::jsonb[], $10::bool[], $11::jsonb[], $12::varchar[], $13::jsonb[], $14::uuid[], $15::int[],
        $25::varchar[], $26::int[], $27::jsonb[]
    ) WITH ORDINALITY AS s (root, id, epoch, step, next_step, iteration, handler_iteration, suspensions,
                            outputs, replied, context, name, value, suspended_id, launches, jump,
                            definition, completions, nth)
    JOIN scoop.run r ON r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
    WHERE NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp())
    FOR UPDATE OF r
),
launched AS MATERIALIZED (
    SELECT m.id, m.topic, m.event, m.run,
           CASE WHEN m.context IS NULL THEN locked_run.new_context ELSE nullif(m.context, '{}') END AS context,
           locked_run.last_event_at - m.until_last * interval '1 microsecond' AS at,
           -- by the clock, regardless of the last event of the run
           clock_timestamp() + (locked_run.launches - m.until_last) * interval '1 microsecond' AS ready_at,
           locked_run.root, locked_run.id AS parent, locked_run.handler, locked_run.step, locked_run.lineage,
           locked_run.rollback_since, locked_run.last_event_at
    FROM unnest($16::int[], $17::int[], $18::uuid[], $19::varchar[], $21::jsonb[], $22::uuid[], $23::uuid[])
        AS m (by, until_last, id, topic, context, event, run)
    JOIN locked_run ON locked_run.nth = m.by
),
-- see settle_launch_one.sql
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT m.id, m.topic, m.payload
    FROM (
        SELECT unnest($16::int[]) AS by, unnest($18::uuid[]) AS id, unnest($19::varchar[]) AS topic,
               unnest($20::jsonb[]) AS payload
    ) m
    -- a message without a payload exists: see message_store.sql
    WHERE m.by = ANY (ARRAY(SELECT nth FROM locked_run)) AND m.payload IS NOT NULL
),
-- a run for each handler that is subscribed now
delivered AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, rollback_since)
    SELECT m.root, h.run, m.parent, m.lineage || h.run, m.id, h.topic, h.handler, m.ready_at, m.last_event_at,
           m.context, CASE WHEN m.rollback_since IS NOT NULL THEN clock_timestamp() END
    FROM launched m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE row_number() OVER () WHEN 1 THEN m.run ELSE scoop.gen_uuid_v7() END AS run
        FROM scoop.handler h WHERE h.topic = m.topic AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING parent, handler
),
awaited_children AS (
    SELECT parent, array_agg(DISTINCT handler::text) AS ready_handlers FROM delivered GROUP BY parent
),
updated_run AS (
    UPDATE scoop.run r
    SET state = CASE WHEN awaited_children.parent IS NULL THEN 'running' ELSE 'waiting' END::scoop.run_state,
        owner = CASE WHEN awaited_children.parent IS NULL THEN r.owner END,
        epoch = r.epoch + 1,
        step = locked_run.step, jump = locked_run.jump, definition = locked_run.definition,
        iteration = locked_run.iteration,
        handler_iteration = locked_run.handler_iteration, suspensions = locked_run.suspensions,
        completions = locked_run.completions, outputs = locked_run.outputs, replied = locked_run.replied,
        context = locked_run.new_context, give_up_at = NULL, last_event_at = locked_run.last_event_at,
        attempts = 0, retries = 0, reason = NULL
    FROM locked_run
    LEFT JOIN awaited_children ON awaited_children.parent = locked_run.id
    WHERE r.root = locked_run.root AND r.id = locked_run.id
    RETURNING r.id, locked_run.epoch, r.state::text, r.last_event_at,
        coalesce(awaited_children.ready_handlers, '{}') AS ready_handlers
),
-- a microsecond apart and in order, since participants order events by this time
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, context,
         next_step, child_failure_handler_iteration, jump, definition)
    SELECT event, id, 'EMITTED'::scoop.message_event_type, handler, $24, step, lineage, at, context, NULL::int,
           NULL::int, NULL::varchar, NULL::int
    FROM launched
    UNION ALL
    SELECT suspended_id, message_id, 'SUSPENDED', handler, $24, step, lineage, last_event_at, new_context, next_step,
           handler_iteration, jump, definition
    FROM locked_run
),
inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, name, coalesce(value, 'null') FROM locked_run WHERE name IS NOT NULL
)
SELECT id, epoch, state, last_event_at, false AS overdue, ready_handlers FROM updated_run
