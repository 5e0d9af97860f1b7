-- Where is the end of the record? The transactions that are visible now, and a time before any later one begins to write.
-- Locks: nothing.
SELECT s.snapshot::text AS snapshot, pg_snapshot_xmin(s.snapshot)::text::bigint AS xmin,
       pg_snapshot_xmax(s.snapshot)::text::bigint AS xmax, statement_timestamp() AS at
FROM (SELECT pg_current_snapshot() AS snapshot) s
