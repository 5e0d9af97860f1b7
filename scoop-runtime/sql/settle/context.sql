-- The context of the run: that of the settlement if it has changed, null if it is empty.
CASE WHEN s.context IS NULL THEN r.context WHEN s.context OPERATOR(pg_catalog.<>) '{}' THEN s.context END
