-- Publishes messages that start hierarchies of their own, one run for each handler listed at
-- this moment. Runs in the caller's transaction.
-- Locks: nothing.
-- $1 the messages: an array of objects with id, root, topic and payload
WITH launched AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset($1) AS m (id uuid, root uuid, topic varchar, payload jsonb)
),
published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT id, topic, coalesce(payload, 'null') FROM launched
),
recorded AS (
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage)
    SELECT id, 'EMITTED', ARRAY[root] FROM launched
    RETURNING message_id, cooperation_lineage[1] AS root, created_at
),
delivery AS (
    SELECT m.root, scoop.gen_uuid_v7() AS id, m.id AS message_id, h.topic, h.handler
    FROM launched m
    JOIN scoop.handler h ON h.topic = m.topic AND h.until IS NULL
),
delivered AS (
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
    SELECT d.root, d.id, ARRAY[d.root, d.id], d.message_id, d.topic, d.handler, r.created_at, r.created_at
    FROM delivery d
    JOIN recorded r ON r.message_id = d.message_id
    RETURNING handler
)
SELECT DISTINCT handler FROM delivered
