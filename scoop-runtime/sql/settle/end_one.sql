-- The run has committed, or is rolled back.
settled_run AS (
    DELETE FROM scoop.run r
    USING settlement s
    WHERE {fence}
    RETURNING r.parent, r.topic, r.failure, r.rollback_failure, r.message_id, r.handler, r.lineage, r.queued_at, r.began_at,
        {context} AS context,
        {event_at} OPERATOR(pg_catalog.+) interval '1 microsecond' AS last_event_at
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
