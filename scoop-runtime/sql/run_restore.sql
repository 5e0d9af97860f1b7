-- Restores runs whose rollback failed, or updates those that are back already: some continue, some wait for others,
-- some await an operator.
-- Locks: the rows of run, and those of ended_run that go.
-- $1 root, $2 the runs: an array of objects, $3 when
WITH revived AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset($2) AS v (
        id uuid, parent uuid, lineage uuid[], message_id uuid, handler varchar, state text,
        rollback_requested boolean, context jsonb, deadlines timestamptz[], reason text, awaits_operator boolean)
),
unended AS (
    DELETE FROM scoop.ended_run e WHERE e.root = $1 AND e.id = ANY (ARRAY(SELECT v.id FROM revived v))
)
INSERT INTO scoop.run AS r
    (root, id, parent, lineage, message_id, topic, handler, state, epoch, rolling_back, rollback_requested,
     rollback_failed_before, suspensions, context, replied, give_up_at, rollback_since, failure, rollback_started_at,
     last_event_at, reason, awaits_operator)
SELECT $1, v.id, v.parent, v.lineage, v.message_id, m.topic, v.handler, v.state::scoop.run_state,
       -- higher than all earlier ones, so that no earlier claim can settle the run
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       true, v.rollback_requested, true,
       (SELECT count(*) FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = v.id AND e.type = 'SUSPENDED'
          AND e.created_at < turned.created_at),
       nullif(v.context, '{}'),
       -- a run whose rollback was requested does not reply any more
       NOT v.rollback_requested AND EXISTS (
           SELECT FROM scoop.return_value reply
           WHERE scoop.run_id(reply.cooperation_lineage) = v.id AND reply.handler_name = v.handler
             AND reply.variable_name NOT LIKE 'Output of %'),
       -- a missed deadline has had its effect; and a run that awaits an operator has no deadline
       (SELECT min(deadline) FROM unnest(v.deadlines) deadline WHERE deadline > $3 AND v.state <> 'stuck'),
       $3, turned.exception, turned.created_at, $3, v.reason, v.awaits_operator
FROM revived v
JOIN scoop.message m ON m.id = v.message_id
JOIN scoop.message_event turned
    ON turned.type = 'ROLLING_BACK' AND turned.coroutine_name = v.handler AND turned.message_id = v.message_id
ON CONFLICT (root, id) DO UPDATE
SET state = excluded.state, ready_at = clock_timestamp(), epoch = r.epoch + 1,
    context = excluded.context, give_up_at = excluded.give_up_at, rollback_since = excluded.rollback_since,
    giving_up = false, last_event_at = greatest(r.last_event_at, excluded.last_event_at),
    reason = excluded.reason, rollback_failure = NULL, attempts = 0, retries = 0,
    awaits_operator = excluded.awaits_operator
