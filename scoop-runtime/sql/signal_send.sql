-- Records a signal, unless there is one with its id, and hands it to all runs that await its name and key, as
-- signal_deliver.sql does. If another one is kept, that one comes first: then no run is reached here. Claims as many of the
-- runs as this worker has slots for, of its program and lane, as run_wake.sql does; the others become ready. All have
-- begun, so claiming them writes no event. A run that begins to await the signal at the same time may not be seen:
-- signal_deliver.sql has to follow the commit if no run is reached.
-- Locks: the row of this worker if it has slots, as a claim does, and before any other row. A worker without a row claims
-- nothing. Then the rows of run, in their order; then the new row: waits for another transaction that inserts a signal
-- with the same id. It waits for any of these for 20 ms at most, and then does nothing and fails: a waiting statement
-- has a connection.
-- $1 id, $2 name, $3 key, $4 payload, $5 for how many seconds it is kept, $6 worker, $7 topics and $8 handlers (pairs) of
-- its program, $9 for each pair the definition that its runs are reserved for, 0 for those that are not, $10 for how many
-- runs it has slots, $11 the topology that the pairs follow from, as in run_claim.sql, $12 the span that sends it, or null
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $6 AND topology = $11 AND $10 > 0 FOR KEY SHARE
),
limited AS MATERIALIZED (SELECT set_config('lock_timeout', '20ms', true)),
-- whether this signal may be delivered here; counts, so that it is one by its only row
first AS MATERIALIZED (
    SELECT (SELECT count(*) FROM limited) = 1  -- before anything else
           AND (SELECT count(*) FROM (
                SELECT FROM scoop.signal s
                WHERE s.name = $2::text AND s.key = $3::text AND s.delivered_at IS NULL AND NOT s.expired
                  AND s.kept_until > (SELECT clock_timestamp())
                LIMIT 1
            ) kept) = 0
           AND (SELECT count(*) FROM own_worker) >= 0 AS is_first  -- the worker before the runs
),
waiting AS MATERIALIZED (
    SELECT r.root, r.id,
           r.epoch > r.unclaimed_epoch AND NOT scoop.is_suspect(r.tries)
           AND (r.topic, r.handler, r.reserved_for) IN (
               SELECT own.topic, own.handler, own.lane
               FROM unnest($7::text[], $8::text[], $9::int[]) AS own (topic, handler, lane)
               WHERE EXISTS (SELECT FROM own_worker)
           ) AS may_be_claimed
    FROM scoop.run r
    WHERE r.state = 'ready' AND (r.awaited).signal = $2::text AND (r.awaited).key = $3::text
      AND r.step IS NOT NULL AND NOT r.giving_up AND r.ready_at > (SELECT clock_timestamp())
      AND (SELECT is_first FROM first)
    ORDER BY r.root, r.id
    FOR UPDATE OF r
),
inserted AS (
    INSERT INTO scoop.signal (id, name, key, payload, kept_until, delivered_at, reached, traceparent)
    SELECT $1, $2, $3, coalesce($4::jsonb, 'null'),
           least(clock_timestamp() + $5::float8 * interval '1 second', '9999-12-31 00:00+00'),
           CASE WHEN counted.runs > 0 THEN clock_timestamp() END, counted.runs, $12::text
    FROM (SELECT count(*) AS runs FROM waiting) counted
    ON CONFLICT (id) DO NOTHING
    RETURNING payload
),
reached AS (
    UPDATE scoop.run r
    SET state = CASE WHEN w.is_claimed THEN 'running' ELSE 'ready' END::scoop.run_state,
        owner = CASE WHEN w.is_claimed THEN $6 END,
        epoch = r.epoch + w.is_claimed::int,
        last_event_at = CASE WHEN w.is_claimed
            THEN greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond') ELSE r.last_event_at END,
        ready_at = clock_timestamp(), awaited = NULL, signalled_by = $12::text,
        outputs = coalesce(r.outputs, '{}') || jsonb_build_object(r.step, w.payload)
    FROM (
        SELECT w.root, w.id, i.payload,
               w.may_be_claimed
               AND row_number() OVER (PARTITION BY w.may_be_claimed ORDER BY w.root, w.id) <= $10 AS is_claimed
        FROM inserted i
        CROSS JOIN waiting w
    ) w
    WHERE r.root = w.root AND r.id = w.id
    RETURNING r.*, w.payload AS output
),
stored AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, 'Output of ' || step || '#' || lpad((greatest(suspensions, 1) - 1)::text, 10, '0'), output
    FROM reached
    ON CONFLICT DO NOTHING
)
SELECT c.state = 'running' AS claimed,
       {claimed_run}
FROM reached c
