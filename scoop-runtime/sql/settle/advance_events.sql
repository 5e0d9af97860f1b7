settled_run AS (
    SELECT * FROM updated_run
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    {suspended_event}
)
