-- Hands runs back that are still mine, to be taken again by anybody: after an attempt in vain
-- (with a pause and the reason) or at shutdown (without).
-- Locks: the released rows of run.
-- $1 roots, $2 ids, $3 epochs, $4 pauses in seconds, $5 reasons, null where there was no attempt
UPDATE scoop.run r
SET state = 'ready',
    owner = NULL,
    ready_at = clock_timestamp() + make_interval(secs => b.pause),
    attempts = r.attempts + CASE WHEN b.reason IS NULL THEN 0 ELSE 1 END,
    reason = b.reason
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::float8[], $5::text[]) AS b (root, id, epoch, pause, reason)
WHERE r.root = b.root AND r.id = b.id AND r.epoch = b.epoch AND r.state = 'running'
