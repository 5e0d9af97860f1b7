-- Returns the step of a run that runs at most once and began after the newest completed one, and when. It has not
-- completed.
-- Locks: nothing.
-- $1 run, $2 how many steps the run has completed
SELECT b.step, b.begun_at FROM scoop.begun_step b WHERE b.run = $1 AND b.instance = $2
