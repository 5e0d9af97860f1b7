-- Publishes messages that start hierarchies of their own, one run for each handler listed at
-- this moment; but none that is there already, as one that may be launched only once can be. Runs in
-- the caller's transaction.
-- Locks: a message that another transaction is launching with the same id: waits for that.
-- $1 the messages: an array of objects with id, root, topic and payload, and what else was said
WITH launched AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset($1) AS m (
        id uuid, root uuid, topic varchar, payload jsonb, context jsonb, due timestamptz,
        deadlines timestamptz[])
),
published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT id, topic, coalesce(payload, 'null') FROM launched
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
recorded AS (
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, context)
    SELECT id, 'EMITTED', ARRAY[root], nullif(context, '{}')
    FROM launched JOIN published USING (id)
    RETURNING message_id, cooperation_lineage[1] AS root, created_at
),
delivery AS (
    SELECT m.root, scoop.gen_uuid_v7() AS id, m.id AS message_id, m.context, m.due, h.topic, h.handler,
           (SELECT min(deadline) FROM unnest(m.deadlines) deadline) AS give_up_at
    FROM launched m
    JOIN scoop.handler h ON h.topic = m.topic AND h.until IS NULL
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
    SELECT d.root, d.id, ARRAY[d.root, d.id], d.message_id, d.topic, d.handler,
           -- whoever has to give up before it is due does so in time
           least(coalesce(d.due, r.created_at), d.give_up_at), r.created_at,
           nullif(d.context, '{}'), d.give_up_at
    FROM delivery d
    JOIN recorded r ON r.message_id = d.message_id
    RETURNING handler
)
SELECT (SELECT count(*) FROM published) AS launched,
       ARRAY(SELECT DISTINCT handler FROM delivered)::text[] AS handlers
