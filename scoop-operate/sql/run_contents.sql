-- What has gone into these runs, and what has come out of them? Of each the message of its newest execution, the context in its
-- newest event, and its first values in the order of their names. Of a larger value only the size: as it is stored, or else as
-- text. A small one may be compressed, and its text many times as large; only small ones are expanded to be measured.
-- Locks: nothing.
-- $1 the ids of the runs, $2 their messages, $3 their handlers, $4 how many values of each at most, $5 the size of a value in
-- bytes at most
SELECT asked.nth, content.kind, content.name, CASE WHEN size.bytes <= $5 THEN content.value END AS value, size.bytes
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY asked (run, message, handler, nth)
CROSS JOIN LATERAL (
    SELECT 'message' AS kind, NULL::text AS name, m.payload AS value
    FROM scoop.message m
    WHERE m.id = coalesce(
        (SELECT x.message_id FROM scoop.execution x WHERE x.run = asked.run ORDER BY x.number DESC LIMIT 1), asked.message)
    UNION ALL
    (SELECT 'context', NULL, e.context
     FROM scoop.message_event e
     WHERE scoop.run_id(e.cooperation_lineage) = asked.run
     ORDER BY e.created_at DESC
     LIMIT 1)
    UNION ALL
    (SELECT 'value', r.variable_name::text, r.value
     FROM scoop.return_value r
     WHERE scoop.run_id(r.cooperation_lineage) = asked.run AND r.handler_name = asked.handler
     ORDER BY r.variable_name
     LIMIT $4)
) content
CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_column_size(content.value) > $5 THEN pg_column_size(content.value)
                ELSE octet_length(content.value::text) END AS bytes
    OFFSET 0
) size
