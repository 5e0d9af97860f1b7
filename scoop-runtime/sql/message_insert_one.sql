-- Inserts one message, as message_insert_many.sql inserts many. It runs in transactions of the caller, whose session
-- plans as it likes: an array would be planned anew for each call, since its length is known then.
-- Locks: nothing.
-- $1 the id of the message, $2 of its root, $3 of its event, $4 of the run of its first handler, $5 its topic,
-- $6 its payload, $7 its context, $8 when it is due, $9 until when the runs have to be done
WITH inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload) VALUES ($1, $5, $6)
),
inserted_events AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, created_at, context)
    VALUES ($3, $1, 'EMITTED', ARRAY[$2::pg_catalog.uuid], pg_catalog.statement_timestamp(), $7)
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
    SELECT $2, h.run, ARRAY[$2, h.run], $1, h.topic, h.handler,
           -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
           greatest(least(coalesce($8, pg_catalog.statement_timestamp()), $9), pg_catalog.statement_timestamp()),
           pg_catalog.statement_timestamp(), $7, $9
    FROM (
        SELECT h.topic, h.handler,
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN $4 ELSE scoop.gen_uuid_v7()
               END AS run
        FROM scoop.handler h WHERE h.topic OPERATOR(pg_catalog.=) $5 AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING handler
)
SELECT handler::pg_catalog.text FROM delivered
UNION ALL
SELECT kept FROM scoop.keep_unhandled($2) AS kept WHERE NOT EXISTS (SELECT FROM delivered)
