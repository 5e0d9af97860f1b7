-- Frees runs that their owner does not execute: the worker is dead, or has lost the answer to a claim or a settlement.
-- The result of such an attempt is unknown, so it counts as a failed one. After the first the run is ready at once,
-- then after a pause that grows, and after the last it is stuck until an operator retries it: it may be what ends the
-- workers. The epoch is raised by the next claim. Until then the run is not running, so that a worker which only seemed
-- dead cannot settle it.
-- Locks: the freed rows of run.
-- $1 the owners, the nil id for none; $2 the ids of the runs that they do execute; lists with an element for each saga
-- of each owner and each of its topics: $3 the owner, $4 the topic, $5 the saga, $6 its definition; $7 the first pause
-- in seconds, $8 the longest, $9 how many attempts may end so before the next event of the run,
-- $10 the reason, $11 the reason of a run that is stuck
WITH lost AS MATERIALIZED (
    SELECT r.root, r.id, least(greatest((r.tries).unknown_attempts, 0), 1000) + 1 AS unknown_attempts
    FROM scoop.run r
    WHERE coalesce(r.owner, '00000000-0000-0000-0000-000000000000') = ANY ($1) AND r.state = 'running'
      AND r.id <> ALL ($2)
    FOR NO KEY UPDATE
)
UPDATE scoop.run r
SET state = CASE WHEN lost.unknown_attempts < $9 THEN 'ready' ELSE 'stuck' END::scoop.run_state,
    owner = NULL,
    ready_at = clock_timestamp() + CASE
        WHEN lost.unknown_attempts BETWEEN 2 AND $9 - 1 THEN make_interval(
            -- Spread by 50 %, so that runs which ended together with one that ends its workers soon begin without it.
            secs => least($7 * 2 ^ (lost.unknown_attempts - 2), $8) * (0.5 + get_byte(uuid_send(r.id),
            9 + lost.unknown_attempts % 7) / 255.0))
        ELSE '0'
    END,
    tries = scoop.tried(r.tries, lost.unknown_attempts, false, (
        SELECT own.definition
        FROM unnest($3::uuid[], $4::text[], $5::text[], $6::int[]) AS own (worker, topic, handler, definition)
        WHERE own.worker = r.owner AND own.topic = r.topic AND own.handler = r.handler
    ), NULL),
    reason = CASE WHEN lost.unknown_attempts < $9 THEN $10 ELSE $11 END
FROM lost
WHERE r.root = lost.root AND r.id = lost.id
RETURNING r.root, r.id, r.state = 'stuck' AS stuck, CASE WHEN r.state = 'stuck' THEN scoop.send_failed(
    'stuck', r.root, r.id, r.handler, r.message_id, r.last_event_at, r.step, scoop.stuck_failure(r.handler, r.reason),
    NULL) END
