-- The runs that send messages. The SUSPENDED of a run is later than the events of its messages.
settled_run AS MATERIALIZED (
    SELECT s.root, s.id, s.epoch, s.ends, s.step, s.next_step, s.iteration, s.handler_iteration, s.suspensions,
           s.outputs, s.replied, s.name, s.value, s.suspended_id, s.jump, s.definition, s.completions, s.message_count,
           s.because, s.nth, r.message_id, r.handler, r.lineage, r.rollback_since, r.rollback_failure IS NOT NULL AS has_failed_before,
           {context} AS context,
           {event_at}
               OPERATOR(pg_catalog.+) (s.message_count OPERATOR(pg_catalog.*) interval '1 microsecond') AS last_event_at
    FROM settlement s
    JOIN scoop.run r ON {fence}
    FOR UPDATE OF r
)
