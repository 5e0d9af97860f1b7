-- The handlers of messages that a run has launched, and what became of each so far, for the strategies that decide about them. A handler
-- that was dropped is left out. `unfinished` is how many children of the run have not ended, those of other messages included.
-- Locks: nothing.
-- $1 root, $2 the id of the run, $3 the messages
SELECT child.*, (
           SELECT count(*) FROM scoop.run c
           WHERE c.root = $1 AND c.parent = $2 AND c.state NOT IN ('ended', 'failed')
       ) AS unfinished
FROM (
    SELECT c.message_id, c.handler::text, c.lineage,
           CASE c.state WHEN 'failed' THEN 'rollback failed' WHEN 'ended' THEN 'rolled back'
                        ELSE CASE WHEN c.epoch = c.unclaimed_epoch THEN 'pending' ELSE 'begun' END END AS state,
           scoop.shown_failure(coalesce(c.rollback_failure, c.failure)) AS failure
    FROM scoop.run c
    WHERE c.root = $1 AND c.parent = $2 AND c.message_id = ANY ($3)
    UNION ALL
    SELECT e.message_id, e.handler::text, e.lineage, 'committed', NULL
    FROM unnest($3::uuid[]) AS asked (message_id)
    CROSS JOIN LATERAL (
        SELECT scoop.run_id(e.cooperation_lineage) AS id FROM scoop.message_event e
        WHERE e.type = 'SEEN' AND e.message_id = asked.message_id OFFSET 0
    ) seen
    CROSS JOIN LATERAL (
        SELECT e.* FROM scoop.ended_run e WHERE e.root = $1 AND e.id = seen.id AND e.outcome = 'committed' OFFSET 0
    ) e
) child
ORDER BY child.message_id, child.handler COLLATE "C"
