-- What has gone into a run, and what has come out of it? The message of its newest execution, the context in its newest event,
-- and its first values in the order of their names. Of a larger value only the size.
-- Locks: nothing.
-- $1 the run's id, $2 its message, $3 its handler, $4 how many values at most, $5 the size of a value in bytes at most
SELECT 'message' AS kind, NULL::text AS name,
       CASE WHEN pg_column_size(m.payload) <= $5 THEN m.payload END AS value, pg_column_size(m.payload) AS bytes
FROM scoop.message m
WHERE m.id = coalesce(
    (SELECT x.message_id FROM scoop.execution x WHERE x.run = $1 ORDER BY x.number DESC LIMIT 1), $2)
UNION ALL
(SELECT 'context', NULL, CASE WHEN pg_column_size(e.context) <= $5 THEN e.context END, pg_column_size(e.context)
 FROM scoop.message_event e
 WHERE scoop.run_id(e.cooperation_lineage) = $1
 ORDER BY e.created_at DESC
 LIMIT 1)
UNION ALL
(SELECT 'value', r.variable_name::text, CASE WHEN pg_column_size(r.value) <= $5 THEN r.value END, pg_column_size(r.value)
 FROM scoop.return_value r
 WHERE scoop.run_id(r.cooperation_lineage) = $1 AND r.handler_name = $3
 ORDER BY r.variable_name
 LIMIT $4)
