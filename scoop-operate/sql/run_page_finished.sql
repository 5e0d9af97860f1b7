-- Which runs have ended, latest end first? Goes through the index of ends from one handler of each asked outcome to the next, and
-- looks up the latest end of each: an index of all ends by time would make each step slower. Then it reads the ends of those
-- handlers whose latest ends are the latest of all: as many handlers as ends are to be read, and of each at most as many. No end is
-- read that is older than the oldest of these latest ends. Returns no more ends than asked: `floor_at` and `floor_id` are the last
-- one if there may be more. One row without a run if none is found.
-- Locks: nothing.
-- $1 the handler, $2 the topic, $3 the outcomes, $4 since and $5 until when they ended, $6 a code in the reason of the
-- rollback or in its latest failure, also if an operator has settled that since, $7 the maximum length of the lineage; each null
-- for all
-- $8 ended before this, $9 and if at that time, with a smaller id than this; null: from the latest on; $10 how many runs,
-- $11 how many ends to read
WITH asked (outcome, handler) AS (
    SELECT k.outcome, h.handler
    FROM unnest('{committed,rolled_back}'::scoop.run_outcome[]) AS k (outcome)
    CROSS JOIN LATERAL (
{ended_handlers}
    ) h
    WHERE $1::text IS NULL AND k.outcome::text = ANY ($3) IS NOT FALSE
    UNION ALL
    SELECT outcome, $1
    FROM unnest('{committed,rolled_back}'::scoop.run_outcome[]) AS outcome
    WHERE $1 IS NOT NULL AND outcome::text = ANY ($3) IS NOT FALSE
),
-- the time of the latest end of each; the end itself may be the one before which the list continues, or beside it
latest AS MATERIALIZED (
    SELECT asked.*, latest.at
    FROM asked
    CROSS JOIN LATERAL (
        SELECT r.ended_at AS at FROM scoop.ended_run r
        WHERE r.outcome = asked.outcome AND r.handler = asked.handler
          AND r.ended_at >= coalesce($4::timestamptz, '-infinity')
          AND r.ended_at <= least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
        ORDER BY r.ended_at DESC
        LIMIT 1
    ) latest
),
first AS MATERIALIZED (
    SELECT l.outcome, l.handler, l.at FROM latest l
    WHERE l.at < least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
    ORDER BY l.at DESC
    FETCH FIRST ($11) ROWS WITH TIES
),
candidate AS MATERIALIZED (
    SELECT ended.*
    FROM (
        SELECT f.outcome, f.handler FROM first f
        UNION ALL
        SELECT l.outcome, l.handler FROM latest l
        WHERE l.at = least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
    ) of
    CROSS JOIN LATERAL (
        SELECT r.* FROM scoop.ended_run r
        WHERE r.outcome = of.outcome AND r.handler = of.handler
          AND r.ended_at >= greatest($4::timestamptz, (
              SELECT CASE WHEN count(*) < $11 THEN '-infinity' ELSE min(f.at) END FROM first f))
          AND (r.ended_at, r.id)
                < (least($5::timestamptz, coalesce($8::timestamptz, 'infinity')),
                   CASE WHEN $5 IS NULL OR $8 < $5 THEN coalesce($9::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                        ELSE '00000000-0000-0000-0000-000000000000' END)
        -- in the order of the index, so that none is read to be sorted
        ORDER BY r.ended_at DESC, r.id DESC
        LIMIT $11
    ) ended
    ORDER BY ended.ended_at DESC, ended.id DESC
    LIMIT $11
),
found AS (
    SELECT c.* FROM candidate c
    WHERE ($2::text IS NULL OR c.topic = $2) AND ($7::int IS NULL OR cardinality(c.lineage) <= $7)
),
chosen AS (
    SELECT f.* FROM found f
    WHERE $6::text IS NULL OR EXISTS (
        SELECT FROM unnest(ARRAY[f.failure, f.rollback_failure]) any_failure
        WHERE jsonb_path_exists(scoop.shown_failure(any_failure), '$.** ? (@.type == $code)', jsonb_build_object('code', $6)))
    ORDER BY f.ended_at DESC, f.id DESC
    LIMIT $10
)
SELECT floor.ended_at AS floor_at, floor.id AS floor_id, scoop.shown_failure(r.rollback_failure) AS other_failure,
       {ended_shown}
FROM (SELECT) AS always
LEFT JOIN (SELECT c.ended_at, c.id FROM candidate c ORDER BY c.ended_at DESC, c.id DESC OFFSET $11 - 1 LIMIT 1)
    AS floor ON true
LEFT JOIN chosen r ON true
{ended_by}
ORDER BY r.ended_at DESC, r.id DESC
