-- Returns how many runs a signal has reached.
-- Locks: nothing.
-- $1 id
SELECT reached FROM scoop.signal WHERE id = $1
