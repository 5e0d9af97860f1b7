-- How has a run ended, if it has? Its newest end, with the failure, and how many parts of its rollback an operator has skipped, by
-- the newest interventions.
-- Locks: nothing.
-- $1 id
SELECT ended.cooperation_lineage AS lineage, $1 AS id, ended.message_id,
       (SELECT m.topic FROM scoop.message m WHERE m.id = ended.message_id) AS topic,
       ended.coroutine_name AS handler, ended.type::text AS type, ended.created_at AS ended_at,
       scoop.shown_failure(CASE ended.type WHEN 'ROLLBACK_FAILED' THEN scoop.latest_rollback_failure($1, ended.exception) WHEN 'ROLLED_BACK' THEN (
           SELECT e.exception FROM scoop.message_event e
           WHERE e.type = 'ROLLING_BACK' AND e.message_id = ended.message_id
             AND e.coroutine_name = ended.coroutine_name
       ) END) AS failure,
       ended.coroutine_identifier AS worker, ended.step,
       CASE ended.type WHEN 'ROLLED_BACK' THEN (
           SELECT count(*) FROM (
               SELECT i.kind FROM scoop.intervention i
               WHERE i.run = $1
               ORDER BY i.requested_at DESC, i.id DESC
               LIMIT 1000
           ) i
           WHERE i.kind = 'skip'
       ) ELSE 0 END AS skipped
FROM (
    SELECT e.* FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = $1
      -- as a text: otherwise the planner may read the index of all ends
      AND e.type::text IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED')
    ORDER BY e.created_at DESC
    LIMIT 1
) ended
