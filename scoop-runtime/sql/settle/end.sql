-- The runs that have committed, or are rolled back.
deleted_run AS (
    DELETE FROM scoop.run r
    USING settlement s
    WHERE {fence}
      AND s.ends IS NOT NULL
    RETURNING r.root, r.parent, r.topic, r.failure, r.rollback_failure, r.id, s.epoch, s.ends, s.last_id, r.message_id, r.handler, r.lineage,
        r.queued_at, r.began_at, {context} AS context,
        {event_at} OPERATOR(pg_catalog.+) interval '1 microsecond' AS last_event_at,
        s.step, s.next_step, s.handler_iteration, s.jump, s.definition, s.suspended_id, s.name, s.value
)
