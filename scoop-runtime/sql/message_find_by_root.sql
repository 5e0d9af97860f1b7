-- Finds the message that started a hierarchy.
-- Locks: nothing.
-- $1 the root
SELECT message_id
FROM scoop.message_event
WHERE scoop.run_id(cooperation_lineage) = $1 AND type::text = 'EMITTED'
  AND cardinality(cooperation_lineage) = 1
