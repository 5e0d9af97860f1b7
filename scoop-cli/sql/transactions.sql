-- What keeps a vacuum from removing rows, the oldest first: transactions of sessions in this database that are open for
-- longer than a time, prepared transactions, and replication slots that are behind.
-- Locks: nothing.
-- $1 the time in ms
SELECT 'session' AS kind, a.pid::text AS name, coalesce(a.application_name, '') AS application,
       coalesce(a.state, '') AS state, (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint AS age_ms
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
  AND a.xact_start < clock_timestamp() - $1::bigint * interval '1 ms'
UNION ALL
SELECT 'prepared', p.gid, '', '', (extract(epoch FROM clock_timestamp() - p.prepared) * 1000)::bigint
FROM pg_prepared_xacts p
WHERE p.database = current_database() AND p.prepared < clock_timestamp() - $1::bigint * interval '1 ms'
UNION ALL
SELECT 'slot', r.slot_name::text, '', '', NULL
FROM pg_replication_slots r
WHERE NOT r.active AND (r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL OR r.restart_lsn IS NOT NULL)
ORDER BY age_ms DESC NULLS LAST, name
LIMIT 20
