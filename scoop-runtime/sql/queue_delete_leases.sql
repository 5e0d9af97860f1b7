-- Deletes the leases of a saga whose limit has ended, under all its names.
-- Locks: their rows of queue_lease.
-- $1 names
DELETE FROM scoop.queue_lease l WHERE l.saga = ANY ($1::text[])
