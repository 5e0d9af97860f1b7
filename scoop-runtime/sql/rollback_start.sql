-- Requests the rollback of the runs that handled a message, all of them finished. No run above them waits for it.
-- A recorded time that no program knows counts as the nearest that it does.
-- Locks: the new rows, and those of ended_run that go.
-- $1 root, $2 message, $3 the lineage of the request, $4 the request as a failure, $5 its id
WITH committed AS MATERIALIZED (
    SELECT ended.*
    FROM scoop.message_event s
    CROSS JOIN LATERAL (
        SELECT e.* FROM scoop.ended_run e
        WHERE e.root = $1 AND e.id = scoop.run_id(s.cooperation_lineage) AND e.outcome = 'committed'
        OFFSET 0
    ) ended
    WHERE s.type = 'SEEN' AND s.message_id = $2
),
request AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, exception, created_at)
    SELECT $5::uuid, $2, 'ROLLBACK_EMITTED', $3, $4,
           -- later than all events of the runs, regardless of the clock
           greatest(clock_timestamp(), least(max(c.ended_at), '9999-12-31 00:00+00') + interval '1 microsecond')
    FROM committed c
    RETURNING created_at
),
unended AS (
    -- by key: the deletion of old hierarchies may have marked the row meanwhile
    DELETE FROM scoop.ended_run e WHERE e.root = $1 AND e.id = ANY (ARRAY(SELECT id FROM committed))
)
INSERT INTO scoop.run
    (root, id, lineage, message_id, topic, handler, last_event_at, rolling_back, rollback_requested, failure,
     rollback_since, epoch, unclaimed_epoch, context, queued_at, began_at)
SELECT c.root, c.id, c.lineage, c.message_id, c.topic, c.handler, request.created_at, true, true, $4, clock_timestamp(),
       -- an epoch of the forward path is not valid for the rollback
       (extract(epoch FROM request.created_at) * 1000000)::bigint,
       (extract(epoch FROM request.created_at) * 1000000)::bigint,
       c.context, c.queued_at, c.began_at
FROM request, committed c
RETURNING handler
