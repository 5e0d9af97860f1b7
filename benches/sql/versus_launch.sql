-- Launches $3 messages with that topic and payload, each of which starts a hierarchy. It uses only columns that older
-- builds have, too.
WITH launched AS (
    SELECT gen_random_uuid() AS root, gen_random_uuid() AS message, gen_random_uuid() AS run FROM generate_series(1, $3)
),
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload) SELECT message, $1, $2::jsonb FROM launched
),
inserted_events AS (
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage) SELECT message, 'EMITTED', ARRAY[root] FROM launched
)
INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
SELECT root, run, ARRAY[root, run], message, h.topic, h.handler, clock_timestamp()
FROM launched JOIN scoop.handler h ON h.topic = $1
