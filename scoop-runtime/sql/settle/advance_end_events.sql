settled_run AS (
    SELECT * FROM updated_run
    UNION ALL
    SELECT id, epoch, ends, last_id, message_id, handler, lineage, context, last_event_at, step, next_step,
           handler_iteration, jump, definition, suspended_id, name, value
    FROM deleted_run
),
inserted_end AS (
    {ended_run}
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    {suspended_event}
    UNION ALL
    {ended_event}
)
