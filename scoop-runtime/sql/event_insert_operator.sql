-- Writes the events that follow from the decision of an operator: a part of a rollback, or all of it, counts as done. A run whose
-- rollback counts as done has ended.
-- Locks: the rows of run that go, the new ones of message_event and of ended_run.
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
ended AS (
    DELETE FROM scoop.run r
    WHERE r.root = $4 AND r.id = ANY (ARRAY(SELECT scoop.run_id(e.lineage) FROM event e WHERE e.type = 'ROLLED_BACK'))
    RETURNING r.*
)
INSERT INTO scoop.ended_run
    (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context,
     queued_at, began_at, ended_at)
SELECT r.root, r.id, r.parent, r.lineage, r.message_id, r.topic, r.handler, 'rolled_back', r.failure, r.rollback_failure,
       r.context, r.queued_at, r.began_at, $3
FROM ended r
