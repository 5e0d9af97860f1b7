-- Settles runs whose step succeeded and launched nothing, or that had no step left: each continues, has committed, or
-- is rolled back. `scoop.settle` has the same rule for all cases.
-- Locks: the rows of run.
-- Arrays with an element for each run: $1 root, $2 run, $3 epoch, $4 COMMITTED or ROLLED_BACK if it ends, $5 whether it
-- went through a step, and if so $6 to $10 which, where it jumps, how often it was repeated, how often
-- the children's failures were handled, and how many came before it, $11 what the steps returned,
-- $12 whether it replied, $13 the context if that has changed, $14 and $15 what the step returned,
-- $16 and $17 the ids of the events, of which a run that goes on needs the first alone.
-- $18 the worker's identifier in events
-- Arrays again: $19 the step that was chosen to run next, $20 the definition under which the step completed, $21 how
-- often each step completed
WITH settlement AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::bool[], $6::varchar[], $7::int[], $8::int[],
        $9::int[], $10::int[], $11::jsonb[], $12::bool[], $13::jsonb[], $14::varchar[], $15::jsonb[],
        $16::uuid[], $17::uuid[], $19::varchar[], $20::int[], $21::jsonb[]
    ) AS s (root, id, epoch, ends, suspends, step, next_step, iteration, handler_iteration,
            suspensions, outputs, replied, context, name, value,
            suspended_id, last_id, jump, definition, completions)
),
updated_run AS (
    UPDATE scoop.run r
    SET epoch = r.epoch + 1,
        step = s.step, jump = s.jump, definition = s.definition, iteration = s.iteration,
        handler_iteration = s.handler_iteration, suspensions = s.suspensions,
        completions = s.completions, outputs = s.outputs, replied = s.replied,
        context = CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END,
        give_up_at = NULL,
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond'),
        attempts = 0, retries = 0, reason = NULL
    FROM settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running' AND s.ends IS NULL
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp())
    RETURNING r.id, s.epoch, r.message_id, r.handler, r.lineage, r.context, r.last_event_at, s.ends,
        s.suspends, s.step, s.next_step, s.handler_iteration, s.name, s.value,
        s.suspended_id, s.last_id, s.jump, s.definition
),
deleted_run AS (
    DELETE FROM scoop.run r
    USING settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running' AND s.ends IS NOT NULL
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp())
    RETURNING r.id, s.epoch, r.message_id, r.handler, r.lineage,
        CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END AS context,
        greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
            + interval '1 microsecond' AS last_event_at,
        s.ends, s.suspends, s.step, s.next_step, s.handler_iteration, s.name, s.value,
        s.suspended_id, s.last_id, s.jump, s.definition
),
settled_run AS (
    SELECT * FROM updated_run UNION ALL SELECT * FROM deleted_run
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, context, next_step, child_failure_handler_iteration, jump, definition)
    SELECT suspended_id, message_id, 'SUSPENDED'::scoop.message_event_type, handler, $18, step, lineage,
           last_event_at - (ends IS NOT NULL)::int * interval '1 microsecond', context, next_step, handler_iteration,
           jump, definition
    FROM settled_run WHERE suspends
    UNION ALL
    SELECT last_id, message_id, ends::scoop.message_event_type, handler, $18, step, lineage, last_event_at, context,
           NULL, NULL, NULL, NULL
    FROM deleted_run
),
inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, name, coalesce(value, 'null') FROM settled_run WHERE name IS NOT NULL
)
SELECT id, epoch, ends IS NOT NULL AS ended, last_event_at FROM settled_run
