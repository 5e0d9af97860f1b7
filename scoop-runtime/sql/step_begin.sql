-- Records that a step which runs at most once begins, in a commit of its own before its code runs. Returns whether this
-- claim begins it, and when it began; no row if the claim does not hold.
-- The key makes one claim the first: of two claims, one of them of a worker that was wrongly presumed dead, the second
-- one finds the row of the first.
-- Locks: the row that it writes.
-- $1 hierarchy, $2 run, $3 epoch of the claim, $4 number of the step's instance in the run, $5 names of the step, the
-- current one first
WITH claimed AS (
    SELECT r.root, r.id FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
),
-- under a former name of the step
former AS (
    SELECT b.begun_at FROM scoop.begun_step b
    WHERE b.run = $2 AND b.instance = $4 AND b.step = ANY ($5) AND b.step <> ($5::text[])[1]
    LIMIT 1
),
begun AS (
    INSERT INTO scoop.begun_step (root, run, instance, step, epoch)
    SELECT root, id, $4, ($5::text[])[1], $3 FROM claimed
    WHERE NOT EXISTS (SELECT FROM former)
    -- nothing changes: the row of the first claim is returned
    ON CONFLICT (run, instance, step) DO UPDATE SET epoch = begun_step.epoch
    RETURNING epoch, begun_at
)
SELECT epoch = $3 AS begins, begun_at FROM begun
UNION ALL
SELECT false, begun_at FROM former CROSS JOIN claimed
