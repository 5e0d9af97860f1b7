-- Records the definitions of a program that are not recorded yet.
-- Locks: the new rows of definition.
-- $1 the definitions: an array of objects
INSERT INTO scoop.definition (handler, fingerprint, steps)
SELECT m.handler, m.fingerprint, m.steps
FROM jsonb_to_recordset($1) AS m (handler text, fingerprint uuid, steps jsonb)
ORDER BY m.handler
ON CONFLICT (handler, fingerprint) DO NOTHING
