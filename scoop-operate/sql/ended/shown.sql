-- What lists and explanations show of the ended runs `r`: the failure is the reason of the rollback. The
-- event of the end has the worker and the step. Of the parts of the rollback that an operator has skipped, those of the newest
-- interventions are counted.
r.lineage, r.id, r.message_id, r.topic, r.handler, r.outcome::text AS outcome, r.queued_at, r.began_at, r.ended_at,
       scoop.shown_failure(r.failure) AS failure,
       e.worker, e.step,
       CASE r.outcome WHEN 'rolled_back' THEN (
           SELECT count(*) FROM (
               SELECT i.kind FROM scoop.intervention i
               WHERE i.run = r.id
               ORDER BY i.requested_at DESC, i.id DESC
               LIMIT 1000
           ) i
           WHERE i.kind = 'skip'
       ) ELSE 0 END AS skipped,
       {found_shown}
