-- What follows from these moves? Applies each to its run, if that still has the epoch the move
-- was made under, and raises it; otherwise to nothing. So a run that somebody took over is left
-- alone, and a settlement that is sent twice is applied once.
-- Locks: the rows of run that are settled, and those of their failed children.
-- $1 the settlements (an array of objects), $2 the worker's identifier in events, $3 what
-- `scoop.claim` must be in this transaction: null outside the transaction of a step
WITH settlement AS MATERIALIZED (
    SELECT *
    FROM jsonb_to_recordset($1) AS s (
        root uuid, id uuid, epoch bigint, ends text,
        step varchar, next_step int, iteration int, handler_iteration int, suspensions int,
        outputs jsonb, backward boolean, turns_back boolean, failure jsonb, rollback_failure jsonb,
        forgets text, event_count int, events jsonb, emissions jsonb,
        told jsonb, told_because jsonb, output_name varchar, output jsonb
    )
),
-- the runs that the emitted messages start: one for each handler listed at this moment
delivery AS MATERIALIZED (
    SELECT s.root AS emitter_root,
           s.id AS emitter,
           scoop.gen_uuid_v7() AS id,
           e.id AS message_id, e.detached_root, e.at,
           h.topic, h.handler
    FROM settlement s
    CROSS JOIN jsonb_to_recordset(s.emissions) AS e (id uuid, topic varchar, detached_root uuid, at int)
    JOIN scoop.handler h ON h.topic = e.topic AND h.until IS NULL
),
-- the finished runs that have to be undone: who handled the message and has not turned back
undoing AS MATERIALIZED (
    SELECT s.root, s.id AS parent, s.told_because, told.at,
           seen.cooperation_lineage AS lineage, seen.message_id, seen.coroutine_name AS handler,
           m.topic
    FROM settlement s
    CROSS JOIN jsonb_array_elements_text(s.told) WITH ORDINALITY AS told (message_id, at)
    JOIN scoop.message_event seen ON seen.type = 'SEEN' AND seen.message_id = told.message_id::uuid
    JOIN scoop.message m ON m.id = seen.message_id
    WHERE NOT EXISTS (
        SELECT FROM scoop.message_event turned
        WHERE turned.type = 'ROLLING_BACK'
          AND turned.coroutine_name = seen.coroutine_name
          AND turned.message_id = seen.message_id
    )
),
kept AS (
    UPDATE scoop.run r
    SET state = CASE
            WHEN s.ends = 'noted' THEN 'ended'
            WHEN EXISTS (SELECT FROM delivery d WHERE d.emitter = s.id AND d.detached_root IS NULL)
              OR EXISTS (SELECT FROM undoing u WHERE u.parent = s.id) THEN 'waiting'
            ELSE 'running'
        END::scoop.run_state,
        epoch = r.epoch + 1,
        owner = CASE
            WHEN s.ends = 'noted'
              OR EXISTS (SELECT FROM delivery d WHERE d.emitter = s.id AND d.detached_root IS NULL)
              OR EXISTS (SELECT FROM undoing u WHERE u.parent = s.id) THEN NULL
            ELSE r.owner
        END,
        step = s.step, next_step = s.next_step, iteration = s.iteration,
        handler_iteration = s.handler_iteration, suspensions = s.suspensions, outputs = s.outputs,
        backward = s.backward, failure = s.failure, rollback_failure = s.rollback_failure,
        turned_back_at = CASE WHEN s.turns_back THEN clock_timestamp() ELSE r.turned_back_at END,
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
            + s.event_count * interval '1 microsecond',
        attempts = 0, reason = NULL
    FROM settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
      AND ($3::text IS NULL OR current_setting('scoop.claim', true) = $3)
      AND s.ends IS DISTINCT FROM 'unnoted'
    RETURNING r.root, r.id, r.lineage, r.message_id, r.handler, r.state, r.last_event_at
),
gone AS (
    DELETE FROM scoop.run r
    USING settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
      AND ($3::text IS NULL OR current_setting('scoop.claim', true) = $3)
      AND s.ends = 'unnoted'
    RETURNING r.root, r.id, r.lineage, r.message_id, r.handler, 'ended'::scoop.run_state AS state,
        greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
            + s.event_count * interval '1 microsecond' AS last_event_at
),
held AS (
    SELECT * FROM kept UNION ALL SELECT * FROM gone
),
published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT e.id, e.topic, coalesce(e.payload, 'null')
    FROM held
    JOIN settlement s ON s.id = held.id
    CROSS JOIN jsonb_to_recordset(s.emissions) AS e (id uuid, topic varchar, payload jsonb)
),
-- a microsecond apart and in order, since participants order events by this time
recorded AS (
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, exception, next_step, child_failure_handler_iteration)
    SELECT e.message_id, e.type::scoop.message_event_type,
           CASE WHEN e.detached_root IS NULL THEN held.handler END,
           CASE WHEN e.detached_root IS NULL THEN $2 END,
           e.step,
           CASE WHEN e.detached_root IS NULL THEN held.lineage ELSE ARRAY[e.detached_root] END,
           held.last_event_at - (s.event_count - e.at) * interval '1 microsecond',
           e.exception, e.next_step, e.handler_iteration
    FROM held
    JOIN settlement s ON s.id = held.id
    CROSS JOIN jsonb_to_recordset(s.events) AS e (
        at int, message_id uuid, type text, step varchar, next_step int, handler_iteration int,
        exception jsonb, detached_root uuid)
    ORDER BY held.id, e.at
),
returned AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT held.lineage, held.handler, s.output_name, coalesce(s.output, 'null')
    FROM held
    JOIN settlement s ON s.id = held.id
    WHERE s.output_name IS NOT NULL
),
delivered AS (
    INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at)
    SELECT coalesce(d.detached_root, held.root),
           d.id,
           CASE WHEN d.detached_root IS NULL THEN held.id END,
           CASE WHEN d.detached_root IS NULL THEN held.lineage ELSE ARRAY[d.detached_root] END || d.id,
           d.message_id, d.topic, d.handler,
           held.last_event_at + d.at * interval '1 microsecond',
           held.last_event_at
    FROM delivery d
    JOIN held ON held.id = d.emitter
    RETURNING handler
),
sent_back AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         backward, told, failure)
    SELECT held.root,
           u.lineage[cardinality(u.lineage)],
           held.id,
           u.lineage, u.message_id, u.topic, u.handler,
           held.last_event_at + u.at * interval '1 microsecond',
           held.last_event_at,
           true, true, u.told_because
    FROM undoing u
    JOIN held ON held.id = u.parent
    RETURNING handler
),
forgotten AS (
    DELETE FROM scoop.run child
    USING held
    JOIN settlement s ON s.id = held.id
    WHERE child.root = held.root AND child.parent = held.id AND child.state = 'ended'
      AND (s.forgets = 'all' OR s.forgets = 'rolled back' AND child.rollback_failure IS NULL)
)
SELECT held.id, held.state::text AS state, held.last_event_at,
       ARRAY(SELECT handler FROM delivered UNION SELECT handler FROM sent_back)::text[] AS started
FROM held
