-- Inserts runs into the empty working set. The epochs of runs that have begun are higher than all earlier ones, so that
-- no earlier claim can settle them.
-- Locks: the new rows of run.
-- $1 the runs: an array of objects
INSERT INTO scoop.run
    (root, id, parent, lineage, message_id, topic, handler, state, ready_at, epoch, unclaimed_epoch, rolling_back,
     rollback_requested, rollback_failed_before, step, jump, definition, iteration, handler_iteration, suspensions,
     completions, outputs, context, replied, giving_up, give_up_at, rollback_since, failure, rollback_failure,
     rollback_started_at, last_event_at, reason, awaits_operator, signal, signal_key, execution,
     execution_since, payload_of, attempts)
SELECT v.lineage[1], scoop.run_id(v.lineage), v.parent, v.lineage, v.message_id, v.topic, v.handler,
       v.state::scoop.run_state, v.ready_at,
       CASE WHEN v.begun OR v.rollback_requested THEN (extract(epoch FROM now()) * 1000000)::bigint ELSE 0 END,
       CASE WHEN v.rollback_requested AND NOT v.begun THEN (extract(epoch FROM now()) * 1000000)::bigint ELSE 0 END,
       v.rolling_back, v.rollback_requested, v.rollback_failed_before, v.step, v.jump, v.definition, v.iteration,
       v.handler_iteration, v.suspensions, v.completions, v.outputs, nullif(v.context, '{}'), v.replied, v.giving_up,
       v.give_up_at, v.rollback_since, v.failure, v.rollback_failure, v.rollback_started_at, v.last_event_at, v.reason,
       v.awaits_operator, v.signal, v.signal_key, v.execution, v.execution_since, v.payload_of,
       -- so that the next claim looks for the step that runs at most once and did not complete
       (NOT v.rolling_back AND EXISTS (
           SELECT FROM scoop.begun_step b WHERE b.run = scoop.run_id(v.lineage) AND b.instance = v.suspensions))::int
FROM jsonb_to_recordset($1) AS v (
    lineage uuid[], parent uuid, message_id uuid, topic varchar, handler varchar, state text,
    ready_at timestamptz, begun boolean, rolling_back boolean, rollback_requested boolean,
    rollback_failed_before boolean, step varchar, jump varchar, definition int, iteration int,
    handler_iteration int, suspensions int, completions jsonb, outputs jsonb, context jsonb, replied boolean,
    giving_up boolean, give_up_at timestamptz, rollback_since timestamptz, failure jsonb, rollback_failure jsonb,
    rollback_started_at timestamptz, last_event_at timestamptz, reason text, awaits_operator boolean, signal varchar,
    signal_key varchar, execution int, execution_since timestamptz, payload_of uuid)
