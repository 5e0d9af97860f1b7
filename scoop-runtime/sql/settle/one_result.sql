SELECT last_event_at FROM settled_run
