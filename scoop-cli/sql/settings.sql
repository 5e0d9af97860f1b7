-- Settings of the server for this session, its clock, and whether it only reads.
-- Locks: nothing.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_num,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections_max,
       (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections,
       (SELECT s.setting::bigint FROM pg_settings s WHERE s.name = 'statement_timeout') AS statement_timeout_ms,
       (SELECT s.setting::bigint FROM pg_settings s WHERE s.name = 'idle_in_transaction_session_timeout') AS idle_timeout_ms,
       (SELECT s.setting::bigint FROM pg_settings s WHERE s.name = 'client_connection_check_interval') AS check_interval_ms,
       current_setting('autovacuum')::bool AND current_setting('track_counts')::bool AS autovacuum,
       current_setting('fsync')::bool AS fsync,
       current_setting('full_page_writes')::bool AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all_sessions,
       pg_is_in_recovery() AS in_recovery,
       (SELECT age(d.datfrozenxid)::bigint FROM pg_database d WHERE d.datname = current_database()) AS xid_age,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
