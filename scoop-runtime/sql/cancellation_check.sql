-- What would the request to cancel a hierarchy, or a run and all below it, do now? Whether it would be recorded, as
-- event_insert_cancellation.sql does; and whether run_mark_cancelled.sql would mark a run.
-- Locks: nothing.
-- $1 root, $2 the id of the hierarchy or run, $3 message
SELECT EXISTS (SELECT FROM scoop.message m WHERE m.id = $3)
           AND NOT EXISTS (
               SELECT FROM scoop.message_event e
               WHERE e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = $1
                 AND scoop.run_id(e.cooperation_lineage) = $2
           ) AS is_new,
       EXISTS (
{cancelled_runs}
       ) AS marks_runs
