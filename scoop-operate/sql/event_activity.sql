-- How many hierarchies and messages were launched, and how many runs ended, in each of these spans? Reads the first events of
-- each, by the times in their ids: `read` is their number, and `last_at` the time of the last one.
-- Locks: nothing.
-- $1 the first id of each span, $2 the first id after it, $3 how many events of a span are read at most
SELECT counted.launched, counted.committed, counted.failed, counted.read, counted.last_at
FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS span (low, high, nth)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.type = 'EMITTED') AS launched,
           count(*) FILTER (WHERE e.type = 'COMMITTED') AS committed,
           count(*) FILTER (WHERE e.type IN ('ROLLED_BACK', 'ROLLBACK_FAILED')) AS failed,
           count(*) AS read, max(e.created_at) AS last_at
    FROM (
        SELECT e.type, e.created_at FROM scoop.message_event e
        WHERE e.id >= span.low AND e.id < span.high
        ORDER BY e.id
        LIMIT $3
    ) e
) counted
ORDER BY span.nth
