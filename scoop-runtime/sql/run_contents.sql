-- What has gone into a run, and what has come out of it? The message of its newest execution, the context in its newest event,
-- and its first values in the order of their names. Of a larger value only the size: as it is stored, or else as text. A
-- small one may be compressed, and its text many times as large; only small ones are expanded to be measured.
-- Locks: nothing.
-- $1 the run's id, $2 its message, $3 its handler, $4 how many values at most, $5 the size of a value in bytes at most
SELECT c.kind, c.name, CASE WHEN size.bytes <= $5 THEN c.value END AS value, size.bytes
FROM (
    SELECT 'message' AS kind, NULL::text AS name, m.payload AS value
    FROM scoop.message m
    WHERE m.id = coalesce(
        (SELECT x.message_id FROM scoop.execution x WHERE x.run = $1 ORDER BY x.number DESC LIMIT 1), $2)
    UNION ALL
    (SELECT 'context', NULL, e.context
     FROM scoop.message_event e
     WHERE scoop.run_id(e.cooperation_lineage) = $1
     ORDER BY e.created_at DESC
     LIMIT 1)
    UNION ALL
    (SELECT 'value', r.variable_name::text, r.value
     FROM scoop.return_value r
     WHERE scoop.run_id(r.cooperation_lineage) = $1 AND r.handler_name = $3
     ORDER BY r.variable_name
     LIMIT $4)
) c
CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_column_size(c.value) > $5 THEN pg_column_size(c.value) ELSE octet_length(c.value::text) END AS bytes
    OFFSET 0
) size
