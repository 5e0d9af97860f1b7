-- Which of the newest repeated failures do not fit the record? Those whose run has no ROLLBACK_FAILED with the same hierarchy,
-- handler and message, and those with the id of an event: forged rows, or rows of runs whose events were damaged. Trees, lists
-- and rebuilds may lack them, archives and deletions of their hierarchy may leave them; event_follow.sql leaves out those with the
-- id of an event.
-- Locks: nothing.
-- $1 how many of the newest, $2 the maximum number of those that are returned
SELECT f.id, f.root, f.run, f.handler, f.message_id, f.shares_id
FROM (
    SELECT newest.*,
           -- counts, so that each is looked up by index
           (SELECT count(*) FROM scoop.message_event e WHERE e.id = newest.id) > 0 AS shares_id,
           (SELECT count(*) FROM scoop.message_event e
            WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = newest.root
              AND scoop.run_id(e.cooperation_lineage) = newest.run
              AND e.coroutine_name = newest.handler AND e.message_id = newest.message_id) > 0 AS is_matched
    FROM (
        SELECT r.id, r.root, r.run, r.handler, r.message_id
        FROM scoop.repeated_failure r
        ORDER BY r.id DESC
        LIMIT $1
    ) newest
) f
WHERE f.shares_id OR NOT f.is_matched
ORDER BY f.id DESC
LIMIT $2
