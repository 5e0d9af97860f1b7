-- Records an intervention of an operator.
-- Locks: the new row of intervention.
-- $1 root, $2 run, $3 handler, $4 message, $5 step, $6 kind, $7 whether the step is to run again although
-- it is suspended, $8 note, $9 who, $10 when, $11 its id
INSERT INTO scoop.intervention
    (id, root, run, handler, message_id, step, kind, reruns_part, note, source, requested_at)
VALUES ($11, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
