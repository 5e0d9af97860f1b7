-- The time from which the runs of a message are ready: by the clock, regardless of the last event of the run that launches it.
pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
               ((s.message_count OPERATOR(pg_catalog.-) m.until_last) OPERATOR(pg_catalog.*) interval '1 microsecond')
