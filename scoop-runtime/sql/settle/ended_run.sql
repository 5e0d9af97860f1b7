-- Adds the runs that have ended to the ended ones.
INSERT INTO scoop.ended_run
        (root, id, parent, lineage, message_id, topic, handler, outcome, failure, context, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, pg_catalog.lower(ends)::scoop.run_outcome, failure, context,
           last_event_at
    FROM {ended}
