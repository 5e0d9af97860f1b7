-- Returns the values of the steps of a run.
-- Locks: nothing.
-- $1 the run's id, $2 its handler
SELECT variable_name, value
FROM scoop.return_value
WHERE cooperation_lineage[cardinality(cooperation_lineage)] = $1 AND handler_name = $2
