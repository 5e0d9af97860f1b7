-- Which runs of some hierarchies differ between the working set and the record? What a rebuild may change does not count:
-- owners, attempts and the pauses after them, why a run is stuck, and the id of one that is pending. Of contents there is only a
-- digest.
-- Locks: nothing.
-- $1 the runs by the record: an array of objects, $2 the hierarchy after which to begin, $3 the last one, $4 those to leave
-- out, $5 the present time
WITH of_both AS MATERIALIZED (
    SELECT false AS is_recorded, r.epoch > 0 AS has_begun, r.*
    FROM scoop.run r
    WHERE r.root > $2 AND r.root <= $3 AND r.root NOT IN (SELECT left_out FROM unnest($4::uuid[]) left_out)
      -- A run that has not begun when its parent gives up never begins.
      AND NOT (r.epoch = r.unclaimed_epoch AND EXISTS (
          SELECT FROM scoop.run p
          WHERE p.root = r.root AND p.id = r.parent AND scoop.has_to_give_up(p.giving_up, p.give_up_at, $5)))
  UNION ALL
    SELECT true, (v.value ->> 'begun')::boolean, r.*
    FROM jsonb_array_elements($1) v (value)
    CROSS JOIN LATERAL jsonb_populate_record(
        NULL::scoop.run,
        v.value || jsonb_build_object('root', v.value #> '{lineage,0}', 'id', v.value #> '{lineage,-1}')) r
),
essence AS MATERIALIZED (
    SELECT r.is_recorded, r.root, r.message_id, r.handler,
           jsonb_build_object(
               'run', CASE WHEN r.has_begun OR r.rollback_requested THEN r.id END,
               'topic', r.topic, 'parent', r.parent, 'rollback_requested', r.rollback_requested,
               'state', CASE WHEN r.state = 'ended' THEN 'ended'
                             WHEN r.awaits_operator THEN r.state::text || ', awaits operator'
                             ELSE 'unfinished' END,
               'failure', md5(r.failure::text), 'rollback_failure', md5(r.rollback_failure::text))
           || CASE WHEN r.state = 'ended' THEN '{}' ELSE jsonb_build_object(
               'rolling_back', r.rolling_back, 'in_rollback', r.rollback_since IS NOT NULL,
               'rollback_failed_before', r.rollback_failed_before, 'replied', r.replied,
               'giving_up', scoop.has_to_give_up(r.giving_up, r.give_up_at, $5), 'give_up_at', r.give_up_at,
               'context', md5(nullif(r.context, '{}')::text),
               'due', CASE WHEN (r.attempts > 0 OR r.retries > 0) IS NOT TRUE AND due.at > $5 + interval '10 minutes' THEN due.at END,
               'signal', CASE WHEN due.at > $5 THEN r.signal END,
               'signal_key', CASE WHEN due.at > $5 THEN r.signal_key END) END
           || CASE WHEN r.state = 'ended' OR r.rollback_failed_before THEN '{}' ELSE jsonb_build_object(
               'step', r.step, 'jump', r.jump, 'definition', r.definition, 'iteration', r.iteration,
               'handler_iteration', r.handler_iteration, 'suspensions', r.suspensions, 'completions', r.completions,
               'outputs', md5(r.outputs::text), 'execution', r.execution, 'execution_since', r.execution_since,
               'payload_of', r.payload_of) END AS fields
    FROM of_both r
    CROSS JOIN LATERAL (
        SELECT CASE WHEN r.state IN ('ready', 'stuck') AND r.parked_since IS NOT NULL THEN r.parked_since
                    ELSE r.ready_at END AS at
    ) due
)
SELECT coalesce(kept.root, recorded.root) AS root, coalesce(kept.message_id, recorded.message_id) AS message_id,
       coalesce(kept.handler, recorded.handler)::text AS handler, kept.fields AS kept, recorded.fields AS recorded
FROM (SELECT e.* FROM essence e WHERE NOT e.is_recorded) kept
FULL JOIN (SELECT e.* FROM essence e WHERE e.is_recorded) recorded
    ON recorded.root = kept.root AND recorded.message_id = kept.message_id AND recorded.handler = kept.handler
WHERE kept.fields IS DISTINCT FROM recorded.fields
ORDER BY 1, 2, 3
