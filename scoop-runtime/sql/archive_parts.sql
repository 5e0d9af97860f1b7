-- Of which parts does a hierarchy consist: itself and its runs, also of former executions?
-- Locks: nothing.
-- $1 the hierarchy
WITH RECURSIVE part (id) AS (
    SELECT $1::uuid
  UNION
    SELECT begun.id
    FROM part
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = part.id AND e.type::text = 'EMITTED'
        OFFSET 0
    ) launched
    CROSS JOIN LATERAL (
        SELECT scoop.run_id(seen.cooperation_lineage) AS id FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = launched.message_id
        OFFSET 0
    ) begun
)
SELECT p.id FROM part p
