-- Claims runs of a saga with a limit by key, as run_claim.sql does, and has each count under its key. It follows limit_lock.sql in
-- its transaction, which checks the topology.
-- Each run is found by its id: `state::text` rules out the index of ready runs, which may have many dead entries.
-- Locks: the claimed rows of run, without those that other transactions have locked.
-- $1 worker, $2 its identifier in events, $3 roots, $4 ids and $6 keys of the runs (triples), $5 how many, $7 ids for as many
-- events
WITH queue AS (
    SELECT r.ctid, r.ready_at AS since, 0 AS turn
    FROM unnest($3::uuid[], $4::uuid[]) AS chosen (root, id)
    CROSS JOIN LATERAL (
        SELECT r.ctid, r.ready_at FROM scoop.run r
        WHERE r.root = chosen.root AND r.id = chosen.id AND r.state::text = 'ready' AND r.ready_at <= clock_timestamp()
        OFFSET 0
    ) r
),
{taken_under_key}
SELECT c.* FROM result c ORDER BY c.ready_at
