-- In which schema is the extension with the statistics of statements, if it is there?
SELECT n.nspname::text AS schema
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'pg_stat_statements'
