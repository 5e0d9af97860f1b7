-- Inserts messages that start hierarchies of their own, and a run for each handler subscribed now. Messages that exist
-- are left out, and all of them if one requires a handler and there is none. Claims the runs for which the launching
-- worker has a slot, as run_claim.sql does, and returns the handlers of the others. `message_insert_one_claiming.sql`
-- and `scoop.launch` have the same rule.
-- Locks: a message that another transaction is launching with the same id: waits for that. Then the row of the worker,
-- as a claim does, and not before it has anything to claim. A worker without a row claims nothing.
-- $1 the messages: an array of objects with id, root, topic, payload and options; `local_runs` has the ids of the runs with a
-- slot, by handler
-- $2 the worker and $3 its identifier in events, $4 the topology that it knows, as in run_claim.sql
WITH asked AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset($1) AS m (
        id uuid, root uuid, topic varchar, payload jsonb, context jsonb, due timestamptz,
        deadlines timestamptz[], local_runs jsonb, required text)
),
-- by the same snapshot as the deliveries below; counts, so that these are looked up, one by one
refused AS MATERIALIZED (
    SELECT a.topic, a.required
    FROM asked a
    WHERE a.required IS NOT NULL
      AND (SELECT count(*) FROM scoop.handler h WHERE h.topic = a.topic AND h.retired_at IS NULL) = 0
      AND (SELECT count(*) FROM scoop.message known WHERE known.id = a.id) = 0
    LIMIT 1
),
launched AS MATERIALIZED (
    SELECT * FROM asked WHERE NOT EXISTS (SELECT FROM refused)
),
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT id, topic, coalesce(payload, 'null') FROM launched
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker
    WHERE id = $2 AND topology = $4 AND (SELECT count(*) FROM inserted_messages) > 0
    FOR KEY SHARE
),
inserted_events AS (
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, context)
    SELECT id, 'EMITTED', ARRAY[root], nullif(context, '{}')
    FROM launched JOIN inserted_messages USING (id)
    RETURNING message_id, cooperation_lineage[1] AS root, created_at
),
delivery AS (
    SELECT m.root, coalesce((m.local_runs ->> h.handler)::uuid, scoop.gen_uuid_v7()) AS id, m.id AS message_id,
           m.context, m.due, h.topic, h.handler,
           (SELECT min(deadline) FROM unnest(m.deadlines) deadline) AS give_up_at,
           (m.local_runs ? h.handler AND EXISTS (SELECT FROM own_worker)) IS TRUE AS claimed_here
    FROM launched m
    JOIN scoop.handler h ON h.topic = m.topic AND h.retired_at IS NULL
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, owner, epoch, ready_at, last_event_at, queued_at,
         began_at, context, give_up_at)
    SELECT d.root, d.id, ARRAY[d.root, d.id], d.message_id, d.topic, d.handler,
           CASE WHEN d.claimed_here THEN 'running' ELSE 'ready' END::scoop.run_state,
           CASE WHEN d.claimed_here THEN $2 END,
           CASE WHEN d.claimed_here THEN 1 ELSE 0 END,
           -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
           greatest(least(coalesce(d.due, r.created_at), d.give_up_at), r.created_at),
           CASE WHEN d.claimed_here THEN greatest(clock_timestamp(), r.created_at + interval '1 microsecond')
                ELSE r.created_at END,
           CASE WHEN d.claimed_here THEN r.created_at END, CASE WHEN d.claimed_here THEN clock_timestamp() END,
           nullif(d.context, '{}'), d.give_up_at
    FROM delivery d
    JOIN inserted_events r ON r.message_id = d.message_id
    RETURNING *
),
begun AS (
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, created_at, context)
    SELECT message_id, 'SEEN', handler, $3, lineage, last_event_at, context
    FROM delivered
    WHERE state = 'running'
)
SELECT (SELECT count(*) FROM inserted_messages) AS launched,
       ARRAY(
           SELECT DISTINCT handler::text FROM delivered WHERE state = 'ready'
           UNION ALL
           SELECT kept FROM inserted_events m CROSS JOIN LATERAL scoop.keep_unhandled(m.root) AS kept
           WHERE NOT EXISTS (SELECT FROM delivered d WHERE d.message_id = m.message_id)
       ) AS handlers,
       ARRAY(SELECT id FROM delivered WHERE state = 'running') AS claimed,
       (SELECT topic FROM refused)::text AS refused, (SELECT required FROM refused) AS refused_type
