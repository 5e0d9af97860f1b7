-- Makes runs ready that this worker holds: after a failed attempt (with a pause and the reason), or at a shutdown
-- (without). A run that has to give up does not pause between the retries of a step, and no pause exceeds a deadline.
-- Locks: the released rows of run.
-- $1 roots, $2 ids, $3 epochs, $4 pauses in seconds, $5 reasons, null where there was no attempt,
-- $6 whether the attempt is one of those that the step is granted, $7 the definition of the program, $8 whether the
-- attempts before were of the same step
UPDATE scoop.run r
SET state = 'ready',
    owner = NULL,
    ready_at = CASE
        WHEN b.reason IS NULL THEN clock_timestamp()
        WHEN NOT b.granted THEN clock_timestamp() + make_interval(secs => b.pause)
        WHEN r.giving_up THEN clock_timestamp()
        -- not in the past: claims may have gone on from there
        ELSE greatest(least(clock_timestamp() + make_interval(secs => b.pause), r.give_up_at), clock_timestamp())
    END,
    tries = CASE WHEN b.reason IS NULL THEN r.tries
                 ELSE scoop.tried(r.tries, coalesce((r.tries).unknown_attempts, 0), b.granted, b.definition, b.again) END,
    reason = b.reason
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::float8[], $5::text[], $6::boolean[], $7::int[], $8::boolean[])
    AS b (root, id, epoch, pause, reason, granted, definition, again)
WHERE r.root = b.root AND r.id = b.id AND r.epoch = b.epoch AND r.state = 'running'
