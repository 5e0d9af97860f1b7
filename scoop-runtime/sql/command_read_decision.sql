-- Returns the decision of a command once it is made: the reply of its run, whether or not the run has ended.
-- Locks: nothing.
-- $1 the message, $2 the name of such replies, $3 the run, or null for any
SELECT decided.value
FROM scoop.message_event seen
CROSS JOIN LATERAL (
    SELECT r.value FROM scoop.return_value r
    WHERE scoop.run_id(r.cooperation_lineage) = scoop.run_id(seen.cooperation_lineage)
      AND r.handler_name = seen.coroutine_name AND r.variable_name = $2::text
    OFFSET 0
) decided
WHERE seen.message_id = $1 AND seen.type = 'SEEN'
  AND ($3::uuid IS NULL OR scoop.run_id(seen.cooperation_lineage) = $3)
LIMIT 1
