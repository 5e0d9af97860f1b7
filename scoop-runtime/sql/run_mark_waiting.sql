-- Records of waiting runs whether they wait for a run that awaits an operator. The transaction holds the lock of the hierarchy.
-- Locks: the rows of run that change.
-- $1 root, lists with an element for each run: $2 the run, $3 whether it does; $4 the reason of those that do
UPDATE scoop.run r
SET awaits_operator = above.awaits_operator, reason = CASE WHEN above.awaits_operator THEN $4::text END
FROM unnest($2::uuid[], $3::boolean[]) AS above (id, awaits_operator)
WHERE r.root = $1 AND r.id = above.id AND r.state = 'waiting' AND r.awaits_operator <> above.awaits_operator
