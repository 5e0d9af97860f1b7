SELECT id, epoch, ends IS NOT NULL AS ended, last_event_at FROM settled_run
