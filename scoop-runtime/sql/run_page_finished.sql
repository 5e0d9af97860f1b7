-- Which runs have ended, latest end first? Goes through the index of ends from one handler of each asked kind to the next, and
-- looks up the latest end of each: an index of all ends by time would make each step slower. Then it reads the ends of those
-- handlers whose latest ends are the latest of all: as many handlers as ends are to be read, and of each at most as many. No end is
-- read that is older than the oldest of these latest ends. An end counts unless the run was undone, repaired, or continues after
-- it. Returns no more ends than asked: `floor_at` and `floor_id` are the last one if there may be more. One row without a run if
-- none is found.
-- Locks: nothing.
-- $1 the handler, $2 the topic, $3 the kinds of ends, $4 since and $5 until when they ended, $6 a code in the reason of the
-- rollback or in its latest failure, also if an operator has settled that since, $7 the maximum length of the lineage; each null
-- for all
-- $8 ended before this, $9 and if at that time, with a smaller id than this; null: from the latest on; $10 how many runs,
-- $11 how many ends to read
WITH asked (type, handler) AS (
    SELECT k.type, h.handler
    FROM unnest('{COMMITTED,ROLLED_BACK,ROLLBACK_FAILED}'::scoop.message_event_type[]) AS k (type)
    CROSS JOIN LATERAL (
{ended_handlers}
    ) h
    WHERE $1::text IS NULL AND k.type::text = ANY ($3) IS NOT FALSE
    UNION ALL
    SELECT type, $1
    FROM unnest('{COMMITTED,ROLLED_BACK,ROLLBACK_FAILED}'::scoop.message_event_type[]) AS type
    WHERE $1 IS NOT NULL AND type::text = ANY ($3) IS NOT FALSE
),
-- the time of the latest end of each; the end itself may be the one before which the list continues, or beside it
latest AS MATERIALIZED (
    SELECT asked.*, latest.at
    FROM asked
    CROSS JOIN LATERAL (
        SELECT e.created_at AS at FROM scoop.run_end e
        WHERE e.type = asked.type AND e.coroutine_name = asked.handler
          AND e.created_at >= coalesce($4::timestamptz, '-infinity')
          AND e.created_at <= least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
        ORDER BY e.created_at DESC
        LIMIT 1
    ) latest
),
first AS MATERIALIZED (
    SELECT l.type, l.handler, l.at FROM latest l
    WHERE l.at < least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
    ORDER BY l.at DESC
    FETCH FIRST ($11) ROWS WITH TIES
),
candidate AS MATERIALIZED (
    SELECT ended.*, of.type, of.handler
    FROM (
        SELECT f.type, f.handler FROM first f
        UNION ALL
        SELECT l.type, l.handler FROM latest l
        WHERE l.at = least($5::timestamptz, coalesce($8::timestamptz, 'infinity'))
    ) of
    CROSS JOIN LATERAL (
        SELECT e.created_at, scoop.run_id(e.cooperation_lineage) AS id, e.cooperation_lineage AS lineage,
               e.message_id, e.coroutine_identifier, e.step, e.exception
        FROM scoop.run_end e
        WHERE e.type = of.type AND e.coroutine_name = of.handler
          AND e.created_at >= greatest($4::timestamptz, (
              SELECT CASE WHEN count(*) < $11 THEN '-infinity' ELSE min(f.at) END FROM first f))
          AND (e.created_at, scoop.run_id(e.cooperation_lineage))
                < (least($5::timestamptz, coalesce($8::timestamptz, 'infinity')),
                   CASE WHEN $5 IS NULL OR $8 < $5 THEN coalesce($9::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                        ELSE '00000000-0000-0000-0000-000000000000' END)
        -- in the order of the index, so that none is read to be sorted
        ORDER BY e.created_at DESC
        FETCH FIRST ($11) ROWS WITH TIES
    ) ended
    ORDER BY ended.created_at DESC, ended.id DESC
    LIMIT $11
),
-- counts, so that each is looked up by index
described AS (
    SELECT c.*,
           (SELECT m.topic FROM scoop.message m WHERE m.id = c.message_id) AS topic,
           CASE WHEN c.type = 'ROLLED_BACK' OR c.type = 'ROLLBACK_FAILED' AND $6::text IS NOT NULL THEN (
               SELECT e.exception FROM scoop.message_event e
               WHERE e.type = 'ROLLING_BACK' AND e.message_id = c.message_id AND e.coroutine_name = c.handler
           ) END AS reason,
           CASE WHEN c.type = 'ROLLBACK_FAILED' THEN scoop.latest_rollback_failure(c.id, c.exception)
                WHEN c.type = 'ROLLED_BACK' AND $6::text IS NOT NULL THEN scoop.rollback_failure_of(c.lineage[1], c.id)
           END AS rollback_failure
    FROM candidate c
    WHERE CASE c.type WHEN 'COMMITTED' THEN (
              SELECT count(*) FROM scoop.message_event e
              WHERE e.type = 'ROLLING_BACK' AND e.message_id = c.message_id AND e.coroutine_name = c.handler
          ) WHEN 'ROLLBACK_FAILED' THEN (
              SELECT count(*) FROM scoop.message_event e
              WHERE e.type = 'ROLLED_BACK' AND e.message_id = c.message_id AND e.coroutine_name = c.handler
          ) ELSE 0 END = 0
      AND (SELECT count(*) FROM scoop.run r
           WHERE r.root = c.lineage[1] AND r.id = c.id AND r.state::text <> 'ended') = 0
      AND ($7::int IS NULL OR cardinality(c.lineage) <= $7)
),
found AS (
    SELECT d.* FROM described d
    WHERE ($2::text IS NULL OR d.topic = $2)
      AND ($6::text IS NULL
           OR jsonb_path_exists(scoop.shown_failure(d.reason), '$.** ? (@.type == $code)', jsonb_build_object('code', $6))
           OR jsonb_path_exists(scoop.shown_failure(d.rollback_failure), '$.** ? (@.type == $code)',
                                jsonb_build_object('code', $6)))
    ORDER BY d.created_at DESC, d.id DESC
    LIMIT $10
)
SELECT floor.created_at AS floor_at, floor.id AS floor_id,
       f.lineage, f.id, f.message_id, f.topic, f.handler, f.type::text AS type, f.created_at AS ended_at,
       scoop.shown_failure(CASE f.type WHEN 'ROLLBACK_FAILED' THEN f.rollback_failure ELSE f.reason END) AS failure,
       scoop.shown_failure(CASE f.type WHEN 'ROLLBACK_FAILED' THEN f.reason ELSE f.rollback_failure END) AS other_failure,
       f.coroutine_identifier AS worker, f.step,
       CASE f.type WHEN 'ROLLED_BACK' THEN (
           SELECT count(*) FROM (
               SELECT i.kind FROM scoop.intervention i
               WHERE i.run = f.id
               ORDER BY i.requested_at DESC, i.id DESC
               LIMIT 1000
           ) i
           WHERE i.kind = 'skip'
       ) ELSE 0 END AS skipped
FROM (SELECT) AS always
LEFT JOIN (SELECT c.created_at, c.id FROM candidate c ORDER BY c.created_at DESC, c.id DESC OFFSET $11 - 1 LIMIT 1)
    AS floor ON true
LEFT JOIN found f ON true
ORDER BY f.created_at DESC, f.id DESC
