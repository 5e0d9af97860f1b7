settled_run AS (
    SELECT * FROM updated_run UNION ALL SELECT * FROM deleted_run
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    {suspended_event}
    UNION ALL
    {ended_event}
)
