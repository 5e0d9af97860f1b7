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
-- the finished runs to roll back: those that handled the message and have not begun to roll back
child_run AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
    SELECT requested.root, scoop.run_id(seen.lineage), requested.parent, seen.lineage, requested.id,
           (SELECT m.topic FROM scoop.message m WHERE m.id = requested.id),
           seen.handler, requested.ready_at, requested.last_event_at,
           true, true, requested.because, clock_timestamp(),
           -- an epoch of the forward path is not valid for the rollback
           (extract(epoch FROM requested.last_event_at) * 1000000)::bigint,
           (extract(epoch FROM requested.last_event_at) * 1000000)::bigint,
           -- its own context, and over it that of the parent now
           nullif(coalesce((
               SELECT e.context FROM scoop.message_event e
               WHERE e.type = 'COMMITTED' AND e.coroutine_name = seen.handler AND e.message_id = requested.id
           ), '{}') || coalesce(requested.context, '{}'), '{}')
    FROM requested
    CROSS JOIN LATERAL (
        SELECT e.coroutine_name AS handler, e.cooperation_lineage AS lineage
        FROM scoop.message_event e WHERE e.type = 'SEEN' AND e.message_id = requested.id OFFSET 0
    ) seen
    -- a count, so that this is no join: then it is looked up, one by one
    WHERE (
        SELECT count(*) FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = seen.handler AND e.message_id = requested.id
    ) = 0
    RETURNING root, id, parent, handler
),
unended AS (
    -- one by one: the table may have been empty when it was analysed
    DELETE FROM scoop.ended_run e
    WHERE e.ctid = ANY (ARRAY(
        SELECT ended.ctid FROM child_run r
        CROSS JOIN LATERAL (SELECT e.ctid FROM scoop.ended_run e WHERE e.root = r.root AND e.id = r.id OFFSET 0) ended))
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
