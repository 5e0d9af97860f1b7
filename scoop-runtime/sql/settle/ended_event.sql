-- The last event of each run that has ended.
SELECT last_id, message_id, ends::scoop.message_event_type, handler, $23, step, lineage, last_event_at, NULL, context,
           NULL, NULL, NULL, NULL
    FROM {ended}
