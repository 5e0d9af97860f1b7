-- All that is on record, hierarchy by hierarchy.
-- Locks: nothing.
SELECT e.cooperation_lineage AS lineage, e.message_id, e.type::text AS type, e.coroutine_name AS handler,
       m.topic, e.step, e.next_step, e.child_failure_handler_iteration AS handling, e.exception, e.context,
       e.created_at
FROM scoop.message_event e
JOIN scoop.message m ON m.id = e.message_id
ORDER BY e.cooperation_lineage[1], e.created_at, e.id
