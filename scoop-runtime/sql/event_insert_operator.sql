-- Writes the events that follow from the decision of an operator: a part of a rollback, or all of it, counts as done. Failed
-- rollbacks that this settles leave their list.
-- Locks: the new rows of message_event, the changed ones of ended_run, and the deleted ones of rollback_failure.
-- $1 the events: an array of objects, $2 by whom, as an identifier in events, $3 when, $4 the root of all of them
WITH event AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset($1) AS e (
        message_id uuid, type text, handler varchar, part varchar, lineage uuid[], handling int, context jsonb)
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at,
         child_failure_handler_iteration, context)
    SELECT e.message_id, e.type::scoop.message_event_type, e.handler, $2, e.part, e.lineage, $3,
           e.handling, nullif(e.context, '{}')
    FROM event e
),
updated_end AS (
    UPDATE scoop.ended_run r
    SET outcome = 'rolled_back', rollback_failure = NULL, context = nullif(e.context, '{}'), ended_at = $3
    FROM event e
    WHERE e.type = 'ROLLED_BACK' AND scoop.run_id(e.lineage) = r.id AND r.root = $4
      AND r.id = ANY (ARRAY(SELECT scoop.run_id(e.lineage) FROM event e))
)
DELETE FROM scoop.rollback_failure f
WHERE f.root = $4
  -- `IS TRUE`, so that this is no join: then the ids are hashed
  AND (f.run IN (SELECT scoop.run_id(e.lineage) FROM event e WHERE e.type = 'ROLLED_BACK')) IS TRUE
