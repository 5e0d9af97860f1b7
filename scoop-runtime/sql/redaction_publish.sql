-- Records fields whose values operators do not see.
-- Locks: the new rows of redaction.
-- $1 topics and $2 fields (pairs)
INSERT INTO scoop.redaction (topic, field)
SELECT DISTINCT own.topic, own.field
FROM unnest($1::text[], $2::text[]) AS own (topic, field)
ORDER BY own.topic, own.field
ON CONFLICT (topic, field) DO NOTHING
