-- Finds messages on a topic that have no run and never had one. Reads a page of events in the order of their ids, which
-- begin with a time. Each row has the id of the last event read; without a message there is one row without one. The
-- cost is one look at each event of the page and two for each message on the topic in it, regardless of the history.
-- Locks: nothing.
-- $1 the topic, $2 since when, $3 the event after which to begin, $4 how many events to read at most,
-- $5 how many messages to return at most
WITH page AS MATERIALIZED (
    SELECT e.id, e.type, e.message_id, e.cooperation_lineage AS lineage, e.context, e.created_at
    FROM scoop.message_event e
    WHERE e.id > $3
    ORDER BY e.id
    LIMIT $4
),
-- counts, so that these are looked up, one by one
not_seen AS MATERIALIZED (
    SELECT p.*
    FROM page p
    WHERE p.type = 'EMITTED' AND p.created_at >= $2
      AND (SELECT m.topic FROM scoop.message m WHERE m.id = p.message_id) = $1
      AND (SELECT count(*) FROM scoop.message_event s WHERE s.type = 'SEEN' AND s.message_id = p.message_id) = 0
      AND (SELECT count(*) FROM scoop.redelivery d WHERE d.message_id = p.message_id) = 0
),
-- the pending deliveries, once for each emitter
pending AS MATERIALIZED (
    SELECT r.message_id
    FROM (
        SELECT DISTINCT lineage[1] AS root, scoop.run_id(lineage) AS parent
        FROM not_seen WHERE cardinality(lineage) > 1
    ) emitter
    CROSS JOIN LATERAL (
        SELECT r.message_id FROM scoop.run r WHERE r.root = emitter.root AND r.parent = emitter.parent OFFSET 0
    ) r
    UNION ALL
    SELECT r.message_id
    FROM not_seen
    CROSS JOIN LATERAL (SELECT r.message_id FROM scoop.run r WHERE r.root = not_seen.lineage[1] OFFSET 0) r
    WHERE cardinality(lineage) = 1
),
unhandled AS (
    SELECT * FROM not_seen
    WHERE message_id NOT IN (SELECT message_id FROM pending)
    ORDER BY id
    LIMIT $5
)
SELECT read.last, read.events, u.id AS event, u.message_id, u.context
FROM (SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS last, (SELECT count(*) FROM page) AS events) read
LEFT JOIN unhandled u ON true
ORDER BY u.id
