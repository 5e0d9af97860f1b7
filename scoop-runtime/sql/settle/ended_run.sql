-- Adds the runs that have ended to the ended ones.
INSERT INTO scoop.ended_run
        (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context,
         queued_at, began_at, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, pg_catalog.lower(ends)::scoop.run_outcome, failure, rollback_failure,
           context, queued_at, began_at, last_event_at
    FROM {ended}
