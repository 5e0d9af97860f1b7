-- Removes the reservations of the runs of these handlers: a worker has started, ended or changed its definitions.
-- Locks: the rows of run that were reserved.
-- $1 handlers
UPDATE scoop.run r
SET reserved_for = 0, refused_by = NULL
WHERE r.reserved_for <> 0 AND r.handler = ANY ($1::text[])
