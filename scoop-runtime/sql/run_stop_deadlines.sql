-- Returns in how many seconds these running runs have to give up. Those without a limit are left out.
-- Locks: nothing.
-- $1 roots, $2 ids, $3 epochs
SELECT r.id,
       CASE WHEN r.giving_up THEN 0
            -- in a range that allows the calculation, as a row may have an infinite time
            ELSE extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', r.give_up_at)) - clock_timestamp())
       END::float8 AS seconds
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS own_runs (root, id, epoch)
JOIN scoop.run r ON r.root = own_runs.root AND r.id = own_runs.id AND r.epoch = own_runs.epoch
WHERE r.giving_up OR r.give_up_at IS NOT NULL
