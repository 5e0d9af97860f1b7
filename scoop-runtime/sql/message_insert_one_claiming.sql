-- Inserts one message, as message_insert_one.sql does, for a worker that has slots for some of its runs, and claims
-- these as message_insert_claiming.sql does, which has the same rule. The message must not exist, and must not have a
-- delay or deadline.
-- Locks: the row of the worker, as a claim does. A worker without a row claims nothing.
-- $1 the id of the message, $2 of its root, $3 of its event, $4 its topic, $5 its payload, $6 its context,
-- $7 the worker, $8 its identifier in events, $12 the topology that it knows, as in run_claim.sql
-- Arrays with an element for each handler with a slot: $9 the handler, $10 the id of its run, $11 of its event
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $7 AND topology = $12 FOR KEY SHARE
),
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload) VALUES ($1, $4, $5)
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, owner, epoch, ready_at, last_event_at,
         queued_at, began_at, context)
    SELECT $2, h.run, ARRAY[$2, h.run], $1, h.topic, h.handler,
           CASE WHEN h.owner IS NULL THEN 'ready' ELSE 'running' END::scoop.run_state, h.owner,
           CASE WHEN h.owner IS NULL THEN 0 ELSE 1 END, statement_timestamp(),
           -- SEEN comes after EMITTED
           statement_timestamp() + CASE WHEN h.owner IS NULL THEN interval '0' ELSE interval '1 microsecond' END,
           CASE WHEN h.owner IS NOT NULL THEN statement_timestamp() END,
           CASE WHEN h.owner IS NOT NULL THEN statement_timestamp() END, $6
    FROM (
        SELECT h.topic, h.handler, coalesce(slot.run, scoop.gen_uuid_v7()) AS run,
               CASE WHEN slot.run IS NOT NULL THEN (SELECT id FROM own_worker) END AS owner
        FROM scoop.handler h
        LEFT JOIN unnest($9::text[], $10::uuid[]) AS slot (handler, run) ON slot.handler = h.handler
        WHERE h.topic = $4 AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING id, handler, lineage, state, last_event_at
),
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, created_at, context)
    SELECT $3, $1, 'EMITTED'::scoop.message_event_type, NULL, NULL, ARRAY[$2], statement_timestamp(), $6
    UNION ALL
    SELECT ($11::uuid[])[array_position($10::uuid[], id)], $1, 'SEEN', handler, $8, lineage, last_event_at, $6
    FROM delivered WHERE state = 'running'
)
SELECT id, handler::text, state = 'running' AS claimed FROM delivered
UNION ALL
SELECT $2, kept, false FROM scoop.keep_unhandled($2) AS kept WHERE NOT EXISTS (SELECT FROM delivered)
