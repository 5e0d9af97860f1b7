-- Settles one run whose step succeeded and launched nothing, and which continues in this worker. `scoop.settle` has
-- the same rule for all cases.
-- Locks: the row of run.
-- $1 root, $2 run, $3 epoch, $4 what `scoop_run.claim` must be in this transaction: null outside the
-- transaction of a step, $5 the worker's identifier in events, $6 to $10 the step, where it jumps, how often
-- it was repeated, how often the children's failures were handled, and how many came before it, $11 what the steps
-- returned,
-- $12 whether it replied, $13 the context if that has changed, $14 and $15 what the step returned,
-- $16 the id of the event: cheaper to make in a program than in the server, $17 the step that was chosen to run next,
-- $18 the definition under which the step completed, $19 how often each step completed
WITH updated_run AS (
    UPDATE scoop.run r
    SET epoch = r.epoch OPERATOR(pg_catalog.+) 1,
        step = $6, jump = $17, definition = $18, iteration = $8, handler_iteration = $9, suspensions = $10,
        completions = $19, outputs = $11, replied = $12,
        context = CASE WHEN $13::pg_catalog.jsonb IS NULL THEN r.context
            WHEN $13 OPERATOR(pg_catalog.<>) '{}' THEN $13 END,
        give_up_at = NULL,
        last_event_at = greatest(
            pg_catalog.clock_timestamp(), r.last_event_at OPERATOR(pg_catalog.+) interval '1 microsecond'),
        attempts = 0, retries = 0, reason = NULL
    WHERE r.root OPERATOR(pg_catalog.=) $1 AND r.id OPERATOR(pg_catalog.=) $2 AND r.epoch OPERATOR(pg_catalog.=) $3
      AND r.state OPERATOR(pg_catalog.=) 'running'
      AND ($4::pg_catalog.text IS NULL OR pg_catalog.current_setting('scoop_run.claim', true) OPERATOR(pg_catalog.=) $4)
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, pg_catalog.clock_timestamp())
    RETURNING r.message_id, r.handler, r.lineage, r.context, r.last_event_at
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, context, next_step, child_failure_handler_iteration, jump, definition)
    SELECT $16, message_id, 'SUSPENDED', handler, $5, $6, lineage, last_event_at, context, $7, $9, $17, $18
    FROM updated_run
),
inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, $14, coalesce($15::pg_catalog.jsonb, 'null') FROM updated_run
           WHERE $14::varchar IS NOT NULL
)
SELECT last_event_at FROM updated_run
