-- Which unfinished runs are there, newest first? Goes through the index of lists from one state and handler to the
-- next, and takes the newest ids of each. Reads no more rows than asked: `floor` is the last id that was read if there
-- may be more. One row without a run if none is found.
-- Locks: nothing.
-- $1 the handler, $2 the topic, $3 the states of rows and $4 their states in words; $5 since and $6 until when they
-- are in it; $7 a code in the reason of the rollback or in its latest failure; $8 what they wait for; $9 the maximum length of
-- the lineage; each null for all
-- $10 ids below this; null: from the newest on; $11 how many runs, $12 how many rows to read
WITH asked (state, handler) AS (
    SELECT l.state, l.handler::text FROM scoop.listed_handler l
    WHERE $1::text IS NULL AND l.state::text = ANY ($3) IS NOT FALSE
    UNION ALL
    SELECT state, $1 FROM unnest('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) AS state
    WHERE $1 IS NOT NULL AND state::text = ANY ($3) IS NOT FALSE
),
candidate AS MATERIALIZED (
    SELECT newest.root, newest.id
    FROM asked
    CROSS JOIN LATERAL (
        SELECT r.root, r.id FROM scoop.run r
        WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
          AND r.state = asked.state AND r.handler = asked.handler
          AND r.id < coalesce($10::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY r.id DESC
        LIMIT $12
    ) newest
    ORDER BY newest.id DESC
    LIMIT $12
),
described AS (
    SELECT u.*
    FROM candidate c
    CROSS JOIN LATERAL (SELECT u.* FROM scoop.unfinished_run u WHERE u.root = c.root AND u.id = c.id OFFSET 0) u
),
found AS (
    SELECT d.* FROM described d
    WHERE ($2::text IS NULL OR d.topic = $2)
      AND ($4::text[] IS NULL OR d.phase = ANY ($4))
      AND ($5::timestamptz IS NULL OR d.since >= $5)
      AND ($6::timestamptz IS NULL OR d.since < $6)
      AND ($7::text IS NULL
           OR jsonb_path_exists(scoop.shown_failure(d.latest_failure), '$.** ? (@.type == $code)',
                                jsonb_build_object('code', $7))
           OR jsonb_path_exists(scoop.shown_failure(d.other_failure), '$.** ? (@.type == $code)',
                                jsonb_build_object('code', $7)))
      AND ($8::text[] IS NULL OR d.waits_for = ANY ($8))
      AND ($9::int IS NULL OR cardinality(d.lineage) <= $9)
    ORDER BY d.id DESC
    LIMIT $11
)
SELECT floor.id AS floor,
       {unfinished_shown},
       CASE WHEN $7::text IS NOT NULL THEN scoop.shown_failure(u.other_failure) END AS other_failure
FROM (SELECT (SELECT c.id FROM candidate c ORDER BY c.id DESC OFFSET $12 - 1 LIMIT 1) AS id) floor
LEFT JOIN found u ON true
ORDER BY u.id DESC
