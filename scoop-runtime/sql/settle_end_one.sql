-- Settles one run whose last step succeeded and launched nothing: it has committed, or is rolled back if that was its
-- last compensation. `scoop.settle` has the same rule for all cases.
-- Locks: the row of run.
-- $1 root, $2 run, $3 epoch, $4 what `scoop_run.claim` must be in this transaction: null outside the
-- transaction of a step, $5 the worker's identifier in events, $6 to $8 the step, where it jumps and how often
-- the children's failures were handled, $9 the context if that has changed, $10 and $11 what the step returned,
-- $12 and $13 the ids of the two events, $14 which the second one is, $15 where in a long history the part is
WITH deleted_run AS (
    DELETE FROM scoop.run r
    WHERE r.root OPERATOR(pg_catalog.=) $1 AND r.id OPERATOR(pg_catalog.=) $2 AND r.epoch OPERATOR(pg_catalog.=) $3
      AND r.state OPERATOR(pg_catalog.=) 'running'
      AND ($4::pg_catalog.text IS NULL OR pg_catalog.current_setting('scoop_run.claim', true) OPERATOR(pg_catalog.=) $4)
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, pg_catalog.clock_timestamp())
    RETURNING r.message_id, r.handler, r.lineage,
        CASE WHEN $9::pg_catalog.jsonb IS NULL THEN r.context WHEN $9 OPERATOR(pg_catalog.<>) '{}' THEN $9 END
            AS context,
        greatest(pg_catalog.clock_timestamp(), r.last_event_at OPERATOR(pg_catalog.+) interval '1 microsecond')
            AS suspended_at
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, context, next_step, child_failure_handler_iteration, jump)
    SELECT e.id, message_id, e.type, handler, $5, $6, lineage,
           suspended_at OPERATOR(pg_catalog.+) (e.later OPERATOR(pg_catalog.*) interval '1 microsecond'), context,
           e.next_step, e.handler_iteration, e.jump
    FROM deleted_run
    CROSS JOIN (
        VALUES ($12::pg_catalog.uuid, 'SUSPENDED'::scoop.message_event_type, $7::int, $8::int, $15::pg_catalog.text, 0),
               ($13, $14::pg_catalog.text::scoop.message_event_type, NULL, NULL, NULL, 1)
    ) AS e (id, type, next_step, handler_iteration, jump, later)
),
inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, $10, coalesce($11::pg_catalog.jsonb, 'null') FROM deleted_run
           WHERE $10::varchar IS NOT NULL
)
SELECT suspended_at OPERATOR(pg_catalog.+) interval '1 microsecond' AS last_event_at FROM deleted_run
