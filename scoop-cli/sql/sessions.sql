-- How many sessions of clients has each application on the server, those with the most first?
-- Locks: nothing.
SELECT coalesce(a.application_name, '') AS application, count(*) AS sessions
FROM pg_stat_activity a
WHERE a.backend_type = 'client backend'
GROUP BY 1
ORDER BY 2 DESC, 1
