-- The SUSPENDED of each run that went through a step. $23 the worker's identifier in events
SELECT suspended_id, message_id, 'SUSPENDED'::scoop.message_event_type, handler, $23::pg_catalog.text, step, lineage,
           CASE WHEN ends IS NULL THEN last_event_at
                ELSE last_event_at OPERATOR(pg_catalog.-) interval '1 microsecond' END,
           NULL::pg_catalog.jsonb, context, next_step, handler_iteration, jump, definition
    FROM {settled} WHERE suspended_id IS NOT NULL
