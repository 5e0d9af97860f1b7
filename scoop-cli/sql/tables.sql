-- The tables of a schema, with their sizes and the rows that a vacuum has not removed yet.
-- Locks: nothing.
-- $1 the schema
SELECT s.relname::text AS name, s.n_live_tup AS live, s.n_dead_tup AS dead, pg_total_relation_size(s.relid) AS bytes,
       (extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum)) * 1000)::bigint AS vacuumed_ms_ago
FROM pg_stat_user_tables s
WHERE s.schemaname = $1
ORDER BY bytes DESC, name
