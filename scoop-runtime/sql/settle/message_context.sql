-- The context of a message: its own one if it has one, null if that is empty.
CASE WHEN m.context IS NULL THEN s.context
                WHEN m.context OPERATOR(pg_catalog.<>) '{}' THEN m.context END
