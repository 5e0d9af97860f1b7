-- Records the request to cancel a hierarchy or a part of it, once.
-- Locks: the row of message, so that a redelivery either sees the request or its runs are marked by it; the new row of
-- message_event.
-- $1 message, $2 lineage, $3 the request as a failure, $4 its id
INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, exception)
SELECT $4, m.id, 'CANCELLATION_REQUESTED', $2, $3 FROM scoop.message m WHERE m.id = $1 FOR KEY SHARE
ON CONFLICT DO NOTHING
