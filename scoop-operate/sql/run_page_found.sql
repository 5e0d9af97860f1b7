-- Which runs are found by a field, those of the newest messages first? All runs of a hierarchy whose first message has the value, and
-- otherwise those of the message: those that have begun by their SEEN, and those that have not among the children of the run that
-- launched it. A message below one that is found is left out, since its runs are found with that. A row without a run for each message
-- without one.
-- Locks: nothing.
-- $1 the field, $2 its values; $3 the time of the message and $4 the message at which the list continues, or null: at the newest; $5 how
-- many messages to read, $6 after this run of that message, $7 how many rows, $8 whether unfinished and $9 finished runs
SELECT n.launched_at, n.found, n.root, of_message.id
FROM (
    {found_newest}
) n
LEFT JOIN LATERAL (
    SELECT every.id
    FROM (
        (SELECT r.id FROM scoop.run r
         WHERE r.root = n.root AND n.found = n.root AND r.state <> 'ended' AND $8::bool
           AND r.id < CASE WHEN n.found = $4 THEN $6::uuid ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END
         ORDER BY r.id DESC
         LIMIT $7)
      UNION ALL
        (SELECT r.id FROM scoop.ended_run r
         WHERE r.root = n.root AND n.found = n.root AND r.outcome <> 'dropped' AND $9::bool
           AND r.id < CASE WHEN n.found = $4 THEN $6::uuid ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END
         ORDER BY r.id DESC
         LIMIT $7)
      UNION ALL
        SELECT below.id
        FROM (
            SELECT scoop.run_id(e.cooperation_lineage) AS id FROM scoop.message_event e
            WHERE e.message_id = n.found AND e.type = 'SEEN'
          UNION
            SELECT r.id
            FROM scoop.message_event e
            CROSS JOIN LATERAL (
                SELECT r.id FROM scoop.run r
                WHERE r.root = n.root AND r.parent = scoop.run_id(e.cooperation_lineage) AND r.message_id = n.found
                  AND r.began_at IS NULL
                OFFSET 0
            ) r
            WHERE e.message_id = n.found AND e.type = 'EMITTED' AND $8::bool
        ) below
        WHERE n.found <> n.root AND below.id < CASE WHEN n.found = $4 THEN $6::uuid ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END
          AND NOT EXISTS (
              SELECT FROM scoop.found_by first WHERE first.found = n.root AND first.name = $1 AND first.value = ANY ($2))
    ) every
    ORDER BY every.id DESC
    LIMIT $7
) of_message ON true
ORDER BY n.launched_at DESC, n.found DESC, of_message.id DESC NULLS LAST
LIMIT $7
