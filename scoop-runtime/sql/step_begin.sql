-- Records that a step which runs at most once begins, in a commit of its own before its code runs. Returns whether this
-- claim begins it, or which step began earlier and when; no row if the claim does not hold.
-- The key makes one claim the first: of two claims, one of them of a worker that was wrongly presumed dead, the second
-- one finds the row of the first. The name of the step is not part of it, since a changed program may have another step
-- there.
-- Locks: the row of run, so that no reaper frees the run before this has committed; then the row that it writes.
-- $1 hierarchy, $2 run, $3 epoch of the claim, $4 how many steps the run has completed, $5 the step
WITH claimed AS MATERIALIZED (
    SELECT r.root, r.id FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
    FOR SHARE
)
INSERT INTO scoop.begun_step (root, run, instance, step, epoch)
SELECT root, id, $4, $5, $3 FROM claimed
-- nothing changes: the row of the first claim is returned
ON CONFLICT (run, instance) DO UPDATE SET epoch = begun_step.epoch
RETURNING epoch = $3 AS begins, step, begun_at
