-- The time of the next event: later than every earlier event of the run, even if the clock was set back.
greatest(pg_catalog.clock_timestamp(), r.last_event_at OPERATOR(pg_catalog.+) interval '1 microsecond')
