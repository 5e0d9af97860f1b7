-- Returns the kind of an id (message, hierarchy or run) and the runs that handle its message. At most one kind; a row
-- for each run, or one without a run. Read only to word an error.
-- Locks: nothing.
-- $1 the id, $2 how many runs at most
WITH named AS (
    (SELECT 'message' AS kind, e.cooperation_lineage[1] AS root, e.message_id
     FROM scoop.message_event e
     WHERE e.type = 'EMITTED' AND e.message_id = $1)
  UNION ALL
    (SELECT CASE WHEN e.type = 'SEEN' THEN 'run' ELSE 'hierarchy' END, e.cooperation_lineage[1], e.message_id
     FROM scoop.message_event e
     WHERE scoop.run_id(e.cooperation_lineage) = $1
       AND (e.type = 'SEEN' OR e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1)
     ORDER BY e.created_at
     LIMIT 1)
  UNION ALL
    -- a pending one is in the working set only
    (SELECT 'run', r.root, r.message_id
     FROM scoop.listed_handler l
     CROSS JOIN LATERAL (
         SELECT r.root, r.lineage, r.message_id FROM scoop.run r
         WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
       AND r.state = l.state AND r.handler = l.handler AND r.id = $1
         LIMIT 1
     ) r
     LIMIT 1)
  LIMIT 1
)
SELECT named.kind, named.root, handling.id AS run, handling.handler
FROM named
LEFT JOIN LATERAL (
    SELECT handled.id, handled.handler
    FROM (
        SELECT scoop.run_id(seen.cooperation_lineage) AS id, seen.coroutine_name AS handler
        FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = named.message_id
      UNION
        SELECT r.id, r.handler
        FROM scoop.run r
        WHERE r.root = named.root AND r.message_id = named.message_id
    ) handled
    WHERE named.kind <> 'run' OR handled.id = $1
    ORDER BY handled.handler, handled.id
    LIMIT $2
) handling ON true
