-- The runs that go on in this worker.
updated_run AS (
    UPDATE scoop.run r
    SET {progress},
        context = {context},
        last_event_at = {event_at}
    FROM settlement s
    WHERE {fence}
      AND s.ends IS NULL
    RETURNING r.id, s.epoch, s.ends, s.last_id, r.message_id, r.handler, r.lineage, r.context, r.last_event_at, s.step,
        s.next_step, s.handler_iteration, s.jump, s.definition, s.suspended_id, s.name, s.value
)
