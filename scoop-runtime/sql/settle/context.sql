-- The context of the run: that of the settlement if it has changed, null if it is empty.
CASE WHEN s.new_context IS NULL THEN r.context WHEN s.new_context OPERATOR(pg_catalog.<>) '{}' THEN s.new_context END
