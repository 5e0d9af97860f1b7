-- Locks messages that seem to have no handler, for the transaction that redelivers them: not those that another one
-- has locked, or is cancelling. A later request to cancel waits.
-- Locks: the rows of message.
-- $1 the messages
SELECT m.id FROM scoop.message m WHERE m.id = ANY($1) ORDER BY m.id FOR UPDATE SKIP LOCKED
