-- Finds the first message of a relaunched hierarchy, and the fields by which messages of its topic are found, in their order.
-- Locks: nothing.
-- $1 the hierarchy
SELECT e.message_id, f.name::text, f.kind
FROM scoop.message_event e
CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
JOIN scoop.find_field f ON f.topic = m.topic
WHERE scoop.run_id(e.cooperation_lineage) = $1 AND e.type::text = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1
  AND NOT EXISTS (SELECT FROM scoop.redaction d WHERE d.topic = f.topic AND d.field = f.name)
ORDER BY f.number, f.name
