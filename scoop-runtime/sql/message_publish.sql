-- Publishes messages that start hierarchies of their own, one run for each handler listed at this
-- moment. None of them may be there already: for those there is message_launch.sql. Lists in place
-- of JSON, and nothing joined, since this is what launching many costs.
-- Locks: nothing.
-- $1 the ids of the messages, $2 of their roots, $3 of their events, $4 of the run of the first handler of
-- each, $5 topics, $6 payloads, $7 contexts, $8 when they are due, $9 until when the runs have to be done
WITH launched AS MATERIALIZED (
    SELECT m.*, clock_timestamp() AS at
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $7::jsonb[],
                $8::timestamptz[], $9::timestamptz[])
      AS m (id, root, event, run, topic, context, due, give_up_at)
),
-- see step_launch_one.sql
published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT unnest($1::uuid[]), unnest($5::text[]), unnest($6::jsonb[])
),
recorded AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, created_at, context)
    SELECT m.event, m.id, 'EMITTED', ARRAY[m.root], m.at, m.context FROM launched m
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
    SELECT m.root, h.run, ARRAY[m.root, h.run], m.id, h.topic, h.handler,
           -- whoever has to give up before it is due does so in time
           least(coalesce(m.due, m.at), m.give_up_at), m.at, m.context, m.give_up_at
    FROM launched m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE row_number() OVER () WHEN 1 THEN m.run ELSE scoop.gen_uuid_v7() END AS run
        FROM scoop.handler h WHERE h.topic = m.topic AND h.until IS NULL OFFSET 0
    ) h
    RETURNING handler
)
SELECT DISTINCT handler::text FROM delivered
