-- What lists and explanations show of the ended runs `r`: the failure is the reason of the rollback, or that of the rollback itself. The
-- event of the end has the worker and the step. Of the parts of the rollback that an operator has skipped, those of the newest
-- interventions are counted.
r.lineage, r.id, r.message_id, r.topic, r.handler, r.outcome::text AS outcome, r.ended_at,
       scoop.shown_failure(CASE r.outcome WHEN 'rollback_failed' THEN r.rollback_failure ELSE r.failure END) AS failure,
       e.worker, e.step,
       CASE r.outcome WHEN 'rolled_back' THEN (
           SELECT count(*) FROM (
               SELECT i.kind FROM scoop.intervention i
               WHERE i.run = r.id
               ORDER BY i.requested_at DESC, i.id DESC
               LIMIT 1000
           ) i
           WHERE i.kind = 'skip'
       ) ELSE 0 END AS skipped
