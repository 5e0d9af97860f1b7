-- Wakes waiting runs that have no child left; and those about which a strategy decides again, since few enough have not ended. It runs after the commits of the children, so that of two last children
-- at least one finds both gone. A run that had completed the last step of its saga, and has no failed child, commits
-- here. Of the others, this worker claims those for which it has slots and a program, as in run_claim.sql; the rest
-- become ready; a run that waits for a time, too, when that is over. All have begun, so claiming them writes no event.
-- A run that has continued since this statement began, and waits for new children that the statement does not see, has
-- another epoch by then and stays as it is.
-- Locks: the row of this worker if it has slots or may commit a run, as a claim does, and before any other row: a
-- transaction that holds it goes on to rows of run. A worker without a row claims and commits nothing: the reaper has
-- swept by then, and no worker would notify the parents. Then the rows of run that are woken, one after the other in
-- the order of $1.
-- $1 the runs: an array of objects with root, id and the time of a child's last event
-- (the filter by type makes the planner take the array for short, so that runs are looked up by index)
-- $2 worker, $3 topics and $4 handlers (pairs) of its program, $5 of how many of the runs, from the first
-- on, it has room for, $6 the names of the last steps of these sagas, none if no run is to commit here,
-- $7 the worker's identifier in events, $8 an id for the event of each of the runs, $9 for each pair the definition
-- that its runs are reserved for, 0 for those that are not, $10 the definition of its program, $11 the topology that
-- the pairs follow from, as in run_claim.sql
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker
    WHERE id = $2 AND topology = $11 AND ($5 > 0 OR cardinality($6::text[]) > 0)
    FOR KEY SHARE
),
locked_run AS MATERIALIZED (
    SELECT r.root, r.id, w.at, ($8::uuid[])[place] AS event, clock.now, wakes.at AS wakes_at,
           own.handler IS NOT NULL AND place <= $5 AND EXISTS (SELECT FROM own_worker)
               AND r.epoch > r.unclaimed_epoch AND wakes.at <= clock.now AS is_claimed,
           -- The step that completed is the last one of the definition at hand, and chose no other.
           (own.last_step = r.step AND (r.suspended).jump IS NULL AND (r.suspended).definition = own.definition AND NOT r.rolling_back) IS TRUE
               AND wakes.at <= clock.now
               AND EXISTS (SELECT FROM own_worker)
               AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, clock.now)
               AND (r.suspended).wait IS NULL
               AND NOT EXISTS (
                   SELECT FROM scoop.run failed WHERE failed.root = r.root AND failed.parent = r.id
               ) AS commits
    FROM jsonb_array_elements($1) WITH ORDINALITY AS parent (object, place)
    CROSS JOIN jsonb_to_record(object) AS w (root uuid, id uuid, at timestamptz)
    -- one time for the deadline and for the event, so that no run commits after its deadline
    CROSS JOIN LATERAL (SELECT clock_timestamp() AS now OFFSET 0) clock
    JOIN scoop.run snapshot ON snapshot.root = w.root AND snapshot.id = w.id
    JOIN scoop.run r ON r.root = snapshot.root AND r.id = snapshot.id AND r.epoch = snapshot.epoch
        AND (r.state = 'waiting' OR r.state = 'ready' AND (r.awaited).children IS NOT NULL)
    -- part of the join, so that it follows a row that was changed while this statement waited for its lock
    CROSS JOIN LATERAL (
        SELECT CASE WHEN r.state = 'waiting' THEN scoop.wakes_at(r.ready_at, r.last_event_at, clock.now) ELSE clock.now END AS at
    ) wakes
    LEFT JOIN unnest($3::text[], $4::text[], $6::text[], $9::int[], $10::int[])
        AS own (topic, handler, last_step, lane, definition)
        ON own.topic = r.topic AND own.handler = r.handler AND own.lane = r.reserved_for
    WHERE (SELECT count(*) FROM own_worker) >= 0
      AND jsonb_typeof(object) = 'object'
      AND CASE WHEN r.state = 'waiting' THEN NOT EXISTS (
          SELECT FROM scoop.run child
          WHERE child.root = r.root AND child.parent = r.id AND child.state NOT IN ('ended', 'failed')
      ) ELSE (
          SELECT count(*) FROM scoop.run child
          WHERE child.root = r.root AND child.parent = r.id AND child.state NOT IN ('ended', 'failed')
      ) <= (r.awaited).children END
    FOR UPDATE OF r
),
woken AS (
    UPDATE scoop.run r
    SET state = CASE WHEN locked_run.is_claimed THEN 'running' ELSE 'ready' END::scoop.run_state,
        owner = CASE WHEN locked_run.is_claimed THEN $2 END,
        epoch = r.epoch + locked_run.is_claimed::int,
        -- the clock is later than the wait for the lock: claims look for no run that was ready before
        ready_at = CASE WHEN r.state = 'waiting' THEN scoop.wakes_at(r.ready_at, r.last_event_at, clock_timestamp())
                        ELSE clock_timestamp() END,
        awaited = CASE WHEN NOT locked_run.is_claimed AND r.state = 'waiting' THEN r.awaited END,
        last_event_at = CASE WHEN locked_run.is_claimed
            THEN greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond',
                locked_run.at + interval '1 microsecond')
            ELSE greatest(r.last_event_at, locked_run.at) END
    FROM locked_run
    WHERE r.root = locked_run.root AND r.id = locked_run.id AND NOT locked_run.commits
    RETURNING r.*, locked_run.event, NULL::timestamptz AS committed_at
),
deleted_run AS (
    DELETE FROM scoop.run r
    USING locked_run
    WHERE r.root = locked_run.root AND r.id = locked_run.id AND locked_run.commits
    RETURNING r.*, locked_run.event,
        greatest(locked_run.now, r.last_event_at + interval '1 microsecond', locked_run.at + interval '1 microsecond')
            AS committed_at
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, context, child_failure_handler_iteration)
    SELECT event, message_id, 'COMMITTED', handler, $7, step, lineage, committed_at, context,
           (suspended).handler_iteration
    FROM deleted_run
),
inserted_end AS (
    INSERT INTO scoop.ended_run
        (root, id, parent, lineage, message_id, topic, handler, outcome, context, queued_at, began_at, ended_at)
    SELECT root, id, parent, lineage, message_id, topic, handler, 'committed', context, queued_at, began_at, committed_at
    FROM deleted_run
)
SELECT c.committed_at, c.state = 'running' AS claimed, c.ready_at > clock_timestamp() AS sleeps, (c.awaited).signal, (c.awaited).key AS signal_key,
       {claimed_run}
FROM (SELECT * FROM woken UNION ALL SELECT * FROM deleted_run) c
