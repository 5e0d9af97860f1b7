-- Checks whether an attempt whose answer was lost carried out this request: then a record has its id.
-- Locks: nothing.
-- $1 the id of the request
SELECT EXISTS (SELECT FROM scoop.message_event WHERE id = $1)
    OR EXISTS (SELECT FROM scoop.intervention WHERE id = $1)
    OR EXISTS (SELECT FROM scoop.message WHERE id = $1)
