-- The time of the event of a message: a microsecond apart and in order, since readers order events by this time. And the
-- time from which its runs are ready: by the clock, regardless of the last event of the run.
s.last_event_at OPERATOR(pg_catalog.-) (m.until_last OPERATOR(pg_catalog.*) interval '1 microsecond') AS at,
           pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
               ((s.message_count OPERATOR(pg_catalog.-) m.until_last) OPERATOR(pg_catalog.*) interval '1 microsecond')
               AS ready_at
