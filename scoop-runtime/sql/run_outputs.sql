-- What did the steps of this run return?
-- Locks: nothing.
-- $1 the run's id, $2 its handler
SELECT variable_name, value
FROM scoop.return_value
WHERE cooperation_lineage[cardinality(cooperation_lineage)] = $1 AND handler_name = $2
