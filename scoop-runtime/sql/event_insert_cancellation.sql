-- Records the request to cancel a hierarchy or a part of it, once.
-- Locks: the new row of message_event.
-- $1 message, $2 lineage, $3 the request as a failure, $4 its id
INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, exception)
VALUES ($4, $1, 'CANCELLATION_REQUESTED', $2, $3)
ON CONFLICT DO NOTHING
