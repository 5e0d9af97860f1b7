-- Returns the key of the signal for which a run has waited last in a step.
-- Locks: nothing.
-- $1 run, $2 the names of the step
SELECT e.wait #>> '{signal,key}'
FROM scoop.message_event e
WHERE scoop.run_id(e.cooperation_lineage) = $1::uuid AND e.step = ANY ($2::text[]) AND e.wait IS NOT NULL
ORDER BY e.created_at DESC
LIMIT 1
