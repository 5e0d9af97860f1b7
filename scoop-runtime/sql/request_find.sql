-- Which hierarchy or run has this id? Its lineage, and the message that it is about.
-- Locks: nothing.
-- $1 the id: the last of the lineage
SELECT e.cooperation_lineage AS lineage, e.message_id
FROM scoop.message_event e
WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1
  AND (e.type = 'SEEN' OR e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1)
ORDER BY e.created_at
LIMIT 1
