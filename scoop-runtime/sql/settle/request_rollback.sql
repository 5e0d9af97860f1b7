-- The messages whose rollback the runs request. This part is for connections of the engine only.
-- Arrays with an element for each message: $24 which of the runs requests it, from 1, $25 how many events follow it,
-- $26 its id, $27 the id of its event
requested AS MATERIALIZED (
    SELECT m.id, m.event,
           {message_at} AS at,
           {message_ready_at} AS ready_at,
           s.root, s.id AS parent, s.handler, s.step, s.lineage, s.context,
           -- a repeated request has the recorded reason
           coalesce(CASE WHEN s.has_failed_before THEN (
               SELECT e.exception FROM scoop.message_event e
               WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = m.id
           ) END, s.because) AS because,
           s.last_event_at
    FROM unnest($24::bigint[], $25::int[], $26::uuid[], $27::uuid[]) AS m (nth, until_last, id, event)
    JOIN settled_run s ON s.nth = m.nth
),
-- the runs to roll back: those that handled the message and have committed
committed AS MATERIALIZED (
    SELECT requested.parent, requested.ready_at, requested.last_event_at, requested.because,
           requested.context AS context_of_parent, ended.*
    FROM requested
    CROSS JOIN LATERAL (
        SELECT scoop.run_id(e.cooperation_lineage) AS id
        FROM scoop.message_event e WHERE e.type = 'SEEN' AND e.message_id = requested.id OFFSET 0
    ) seen
    -- one by one: the table may have been empty when it was analysed
    CROSS JOIN LATERAL (
        SELECT e.ctid AS place, e.root, e.id, e.lineage, e.message_id, e.topic, e.handler, e.context, e.queued_at, e.began_at
        FROM (SELECT) AS always
        LEFT JOIN scoop.ended_run e ON e.root = requested.root AND e.id = seen.id
        WHERE CASE WHEN e.id IS NULL THEN NOT scoop.is_in_run(requested.root, seen.id) ELSE e.outcome = 'committed' END
        OFFSET 0
    ) ended
),
-- they move back
unended AS (
    DELETE FROM scoop.ended_run e WHERE e.ctid = ANY (ARRAY(SELECT place FROM committed))
),
child_run AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, queued_at, began_at,
         rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
    SELECT root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, queued_at, began_at,
           true, true, because, clock_timestamp(),
           -- an epoch of the forward path is not valid for the rollback
           (extract(epoch FROM last_event_at) * 1000000)::bigint,
           (extract(epoch FROM last_event_at) * 1000000)::bigint,
           -- its own context, and over it that of the parent now
           nullif(coalesce(context, '{}') || coalesce(context_of_parent, '{}'), '{}')
    FROM committed
    RETURNING root, id, parent, handler
),
-- a part of the hierarchy may have been requested to roll back before
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    SELECT event, id, 'ROLLBACK_EMITTED'::scoop.message_event_type, handler, $23, step, lineage, at, because, context,
           NULL, NULL, NULL, NULL
    FROM requested
    UNION ALL
    {suspended_event}
    ON CONFLICT (message_id, type) WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED') DO NOTHING
)
