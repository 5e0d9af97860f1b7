-- Which statements about the tables of this schema take longest on average? {schema} is that of the extension.
-- $1 the name of the schema, $2 the mean time in milliseconds from which on a statement counts
SELECT left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) AS text, s.calls, s.mean_exec_time AS mean_ms
FROM {schema}.pg_stat_statements s
WHERE s.dbid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND s.mean_exec_time >= $2 AND s.calls >= 10
  AND (position(quote_ident($1) || '.' IN s.query) > 0 OR position('"' || $1 || '".' IN s.query) > 0)
ORDER BY s.mean_exec_time DESC
LIMIT 3
