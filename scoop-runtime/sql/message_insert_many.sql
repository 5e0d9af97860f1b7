-- Inserts messages that start hierarchies of their own, and a run for each handler subscribed now. None of the messages
-- may exist: message_insert_claiming.sql is for those that may. Arrays instead of JSON and no join, since many launches
-- cost just that.
-- Locks: nothing.
-- $1 the ids of the messages, $2 of their roots, $3 of their events, $4 of the run of the first handler of
-- each, $5 topics, $6 payloads, $7 contexts, $8 when they are due, $9 until when the runs have to be done
WITH launched AS MATERIALIZED (
    SELECT m.*, pg_catalog.clock_timestamp() AS at
    FROM unnest(
        $1::pg_catalog.uuid[], $2::pg_catalog.uuid[], $3::pg_catalog.uuid[], $4::pg_catalog.uuid[],
        $5::pg_catalog.text[], $7::pg_catalog.jsonb[], $8::pg_catalog.timestamptz[], $9::pg_catalog.timestamptz[]
    ) AS m (id, root, event, run, topic, context, due, give_up_at)
),
-- Taken apart here, since payloads may be large: see settle/launch.sql.
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT pg_catalog.unnest($1::pg_catalog.uuid[]), pg_catalog.unnest($5::pg_catalog.text[]),
           pg_catalog.unnest($6::pg_catalog.jsonb[])
),
inserted_events AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, created_at, context)
    SELECT m.event, m.id, 'EMITTED', ARRAY[m.root], m.at, m.context FROM launched m
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
    SELECT m.root, h.run, ARRAY[m.root, h.run], m.id, h.topic, h.handler,
           -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
           greatest(least(coalesce(m.due, m.at), m.give_up_at), m.at), m.at, m.context, m.give_up_at
    FROM launched m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN m.run ELSE scoop.gen_uuid_v7()
               END AS run
        FROM scoop.handler h WHERE h.topic OPERATOR(pg_catalog.=) m.topic AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING handler, message_id
)
SELECT DISTINCT handler::pg_catalog.text FROM delivered
UNION ALL
SELECT kept
FROM launched m CROSS JOIN LATERAL scoop.keep_unhandled(m.root) AS kept
WHERE NOT EXISTS (SELECT FROM delivered d WHERE d.message_id OPERATOR(pg_catalog.=) m.id)
