-- The run goes on in this worker.
settled_run AS (
    UPDATE scoop.run r
    SET {progress},
        context = {context},
        last_event_at = {event_at}
    FROM settlement s
    WHERE {fence}
    RETURNING r.message_id, r.handler, r.lineage, r.context, r.last_event_at
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    {suspended_event}
)
