-- Requests the rollback of the runs that handled a message, all of them finished. No run above them waits for it.
-- A recorded time that no program knows counts as the nearest that it does.
-- Locks: the new rows, and those of ended_run that go.
-- $1 root, $2 message, $3 the lineage of the request, $4 the request as a failure, $5 its id
WITH request AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, exception, created_at)
    SELECT $5::uuid, $2, 'ROLLBACK_EMITTED', $3, $4,
           -- later than all events of the runs, regardless of the clock
           greatest(clock_timestamp(), least(max(done.created_at), '9999-12-31 00:00+00') + interval '1 microsecond')
    FROM scoop.message_event s
    LEFT JOIN scoop.message_event done
        ON done.type = 'COMMITTED' AND done.message_id = s.message_id AND done.coroutine_name = s.coroutine_name
    WHERE s.type = 'SEEN' AND s.message_id = $2
    RETURNING message_id, created_at
),
started AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, last_event_at, rolling_back, rollback_requested, failure,
         rollback_since, epoch, unclaimed_epoch, context)
    SELECT $1, scoop.run_id(s.cooperation_lineage), s.cooperation_lineage, s.message_id,
           m.topic, s.coroutine_name, request.created_at, true, true, $4, clock_timestamp(),
           -- an epoch of the forward path is not valid for the rollback
           (extract(epoch FROM request.created_at) * 1000000)::bigint,
           (extract(epoch FROM request.created_at) * 1000000)::bigint,
           done.context
    FROM request
    JOIN scoop.message m ON m.id = request.message_id
    JOIN scoop.message_event s ON s.type = 'SEEN' AND s.message_id = request.message_id
    LEFT JOIN scoop.message_event done
        ON done.type = 'COMMITTED' AND done.message_id = s.message_id AND done.coroutine_name = s.coroutine_name
    WHERE NOT EXISTS (
        SELECT FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.message_id = s.message_id AND e.coroutine_name = s.coroutine_name
    )
    RETURNING root, run.id, handler
),
unended AS (
    DELETE FROM scoop.ended_run e
    WHERE e.ctid = ANY (ARRAY(
        SELECT ended.ctid FROM started r
        CROSS JOIN LATERAL (SELECT e.ctid FROM scoop.ended_run e WHERE e.root = r.root AND e.id = r.id OFFSET 0) ended))
)
SELECT handler FROM started
