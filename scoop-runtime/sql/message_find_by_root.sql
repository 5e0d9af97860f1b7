-- Finds the message that started a hierarchy.
-- Locks: nothing.
-- $1 the root
SELECT message_id
FROM scoop.message_event
WHERE cooperation_lineage[cardinality(cooperation_lineage)] = $1 AND type = 'EMITTED'
  AND cardinality(cooperation_lineage) = 1
