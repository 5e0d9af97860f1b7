-- The time of the next event: later than all events of the run before, whatever the clock says.
greatest(pg_catalog.clock_timestamp(), r.last_event_at OPERATOR(pg_catalog.+) interval '1 microsecond')
