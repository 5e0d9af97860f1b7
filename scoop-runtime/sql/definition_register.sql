-- Records a definition under the next number, unless it is recorded already, or another program takes the number meanwhile.
-- Locks: the new row of definition.
-- $1 handler, $2 fingerprint, $3 steps
INSERT INTO scoop.definition (id, handler, fingerprint, steps)
SELECT coalesce(max(d.id), 0) + 1, $1, $2, $3
FROM scoop.definition d
ON CONFLICT DO NOTHING
