-- What a decision about a failed rollback needs: the run and those above it, root first, and the runs below it that it waits for. A
-- failed run below is read with those below it. `part_is_done` and `leaves_behind` are of the run itself: whether a SUSPENDED of its
-- rollback is of the part that failed; and whether it gave up, so that runs which the newest part launched, or whose rollback it
-- requested, have not begun and will not. An operator who skipped the part has accepted that.
-- Locks: nothing.
-- $1 root, $2 the lineage of the run, $3 its id, $4 the source named in the events of operators
WITH RECURSIVE below (id) AS (
    SELECT r.id FROM scoop.run r WHERE r.root = $1 AND r.parent = $3
    -- without duplicates, so that it ends at forged rows that lead in a circle
    UNION
    SELECT child.id
    FROM below
    CROSS JOIN LATERAL (
        SELECT r.id FROM scoop.run r
        WHERE r.root = $1 AND r.parent = below.id
          AND (SELECT above.state FROM scoop.run above WHERE above.root = $1 AND above.id = below.id) = 'failed'
        OFFSET 0
    ) child
),
concerned AS MATERIALIZED (
    SELECT r.*
    FROM unnest($2::uuid[] || ARRAY(SELECT below.id FROM below)) AS one (id)
    CROSS JOIN LATERAL (SELECT r.* FROM scoop.run r WHERE r.root = $1 AND r.id = one.id OFFSET 0) r
),
target AS MATERIALIZED (
    SELECT r.id, r.step, r.rollback_failure, newest.step AS suspended_part, newest.coroutine_identifier AS suspended_by
    FROM scoop.run r
    LEFT JOIN LATERAL (
        SELECT e.step, e.coroutine_identifier
        FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = r.id AND e.type = 'SUSPENDED' AND e.created_at > (
            SELECT turned.created_at FROM scoop.message_event turned
            WHERE turned.type = 'ROLLING_BACK' AND turned.coroutine_name = r.handler AND turned.message_id = r.message_id)
        ORDER BY e.created_at DESC
        LIMIT 1
    ) newest ON true
    WHERE r.root = $1 AND r.id = $3 AND r.state::text = 'failed'
)
SELECT r.id, r.parent, r.lineage, r.message_id, r.handler, r.state::text AS state, r.rolling_back, r.step, (r.suspended).handler_iteration,
       r.rollback_failure IS NOT NULL AS has_failed, r.context, r.last_event_at,
       -- launched by the run above during its rollback
       (SELECT emitted.created_at FROM scoop.message_event emitted
        WHERE emitted.type = 'EMITTED' AND emitted.message_id = r.message_id)
           > (SELECT turned.created_at
              FROM scoop.run above
              CROSS JOIN LATERAL (
                  SELECT e.created_at FROM scoop.message_event e
                  WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = above.handler AND e.message_id = above.message_id
                  OFFSET 0
              ) turned
              WHERE above.root = $1 AND above.id = r.parent)
           AS compensates,
       r.id = $3 AND r.step = (SELECT t.suspended_part FROM target t) AS part_is_done,
       CASE WHEN r.id = $3 THEN (
           SELECT t.rollback_failure ->> 'type' LIKE '%GaveUpException' AND t.suspended_by <> $4 AND EXISTS (
               SELECT FROM scoop.message_event sent
               WHERE scoop.run_id(sent.cooperation_lineage) = t.id
                 -- as a text: otherwise the planner may read the index of all such events
                 AND sent.type::text IN ('EMITTED', 'ROLLBACK_EMITTED')
                 AND sent.coroutine_name = r.handler AND sent.step = t.suspended_part
                 AND CASE sent.type
                     WHEN 'EMITTED' THEN EXISTS (
                         SELECT FROM scoop.message launched
                         JOIN scoop.handler h ON h.topic = launched.topic AND h.since <= sent.created_at
                         WHERE launched.id = sent.message_id AND h.dropped_at IS NULL
                           AND (h.retired_at IS NULL OR h.retired_at > sent.created_at)
                           AND NOT EXISTS (
                               SELECT FROM scoop.message_event seen
                               WHERE seen.type = 'SEEN' AND seen.coroutine_name = h.handler
                                 AND seen.message_id = sent.message_id))
                     ELSE EXISTS (
                         SELECT FROM scoop.message_event seen
                         WHERE seen.type = 'SEEN' AND seen.message_id = sent.message_id
                           AND NOT EXISTS (
                               SELECT FROM scoop.message_event back
                               WHERE back.type = 'ROLLING_BACK' AND back.coroutine_name = seen.coroutine_name
                                 AND back.message_id = seen.message_id))
                     END)
           FROM target t
       ) END AS leaves_behind
FROM concerned r
