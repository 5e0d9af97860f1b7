-- Lists pending runs that have to give up and whose saga no living worker has, each with the steps of its newest
-- definition. Runs of paused sagas are left out until the pause is over. Without such a queue of ready runs, no row of run is
-- read; otherwise those that have to give up are, of whichever saga. Each `OFFSET 0` keeps the planner from looking for
-- them among all runs of such a queue.
-- Locks: nothing.
-- $1 how many
WITH abandoned AS MATERIALIZED (
    SELECT q.handler::text, q.topic::text FROM scoop.abandoned_queue q
    WHERE q.reserved_for = 0 AND scoop.pauses_of(q.handler, q.topic, false) IS NULL
),
overdue AS MATERIALIZED (
    SELECT r.root, r.id, r.topic, r.handler, r.ready_at
    FROM (
        (SELECT r.* FROM scoop.run r
         WHERE r.state = 'ready' AND r.giving_up AND EXISTS (SELECT FROM abandoned)
         OFFSET 0)
        UNION ALL
        (SELECT r.* FROM scoop.run r
         WHERE r.state = 'ready' AND NOT r.giving_up AND r.give_up_at <= (SELECT clock_timestamp())
           AND EXISTS (SELECT FROM abandoned)
           AND NOT scoop.is_paused_for_new(r.handler, r.topic)
         OFFSET 0)
    ) r
    WHERE r.epoch = r.unclaimed_epoch AND NOT r.rollback_requested AND r.parked_since IS NULL
      AND (r.handler::text, r.topic::text) IN (SELECT handler, topic FROM abandoned)
    LIMIT $1
)
SELECT o.root, o.id AS suspect, o.topic, o.handler, 0 AS reserved_for, o.ready_at, d.steps
FROM overdue o
CROSS JOIN LATERAL (
    SELECT d.steps FROM scoop.definition d WHERE d.handler = o.handler ORDER BY d.since DESC LIMIT 1
) d
