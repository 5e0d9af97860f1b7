SELECT id, epoch, state, last_event_at, false AS overdue, ready_handlers FROM updated_run
