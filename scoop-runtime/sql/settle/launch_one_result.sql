SELECT $2 AS id, $3 AS epoch, state::pg_catalog.text, last_event_at, false AS overdue,
       ARRAY(SELECT handler::pg_catalog.text FROM child_run) AS ready_handlers
FROM settled_run
