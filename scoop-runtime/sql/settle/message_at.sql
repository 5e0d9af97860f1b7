-- The time of the event of a message: a microsecond apart and in order, since readers order events by this time.
s.last_event_at OPERATOR(pg_catalog.-) (m.until_last OPERATOR(pg_catalog.*) interval '1 microsecond')
