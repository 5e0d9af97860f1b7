-- Has this hierarchy not ended? A failed rollback that rests is an end. Asked when the schedule is
-- taken, in a statement of its own: that which takes it may have begun before the hierarchy did.
-- Locks: nothing.
-- $1 the root
SELECT EXISTS (SELECT FROM scoop.run WHERE root = $1 AND state <> 'failed')
