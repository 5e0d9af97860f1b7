-- Returns the values of the steps of a run.
-- Locks: nothing.
-- $1 the run's id, $2 its handler
SELECT variable_name, value
FROM scoop.return_value
WHERE scoop.run_id(cooperation_lineage) = $1 AND handler_name = $2
