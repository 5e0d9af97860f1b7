-- Has this hierarchy not ended? Asked when the schedule is taken, in a statement of its own: that
-- which takes it may have begun before the hierarchy did.
-- Locks: nothing.
-- $1 the root
SELECT EXISTS (SELECT FROM scoop.run WHERE root = $1)
