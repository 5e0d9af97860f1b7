-- Delivers messages without a handler to the handlers listed at this moment; each at most once. One that started a
-- hierarchy goes on in that. In place of one that a run had launched, and does not wait for, a copy starts a hierarchy
-- of its own. Not redelivered are those whose hierarchy was asked to give up or launched again, or whose emitter is being undone, or
-- whose delivery an operator has dropped.
-- Locks: the new rows; a redelivery of the same message by another transaction, which the lock taken by
-- redeliver_lock.sql excludes. That was an earlier statement, so this one sees all that was committed before it.
-- Arrays with an element for each message: $1 its id, $2 when it is due, $3 until when its runs have to be done,
-- $4 the id of a copy, $5 of its root, $6 of its event
WITH asked AS MATERIALIZED (
    SELECT a.*, m.topic, m.payload, e.context, e.cooperation_lineage AS lineage, e.created_at AS emitted_at,
           e.coroutine_name IS NOT NULL AS is_copied,
           -- a program knows no later time, and the server cannot calculate with its last one
           greatest(
               clock_timestamp(),
               CASE WHEN e.created_at < '9999-12-31Z' THEN e.created_at + interval '1 microsecond' END
           ) AS at
    FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::uuid[], $5::uuid[], $6::uuid[])
        AS a (id, due, give_up_at, copy, copy_root, copy_event)
    CROSS JOIN LATERAL (SELECT m.topic, m.payload FROM scoop.message m WHERE m.id = a.id OFFSET 0) m
    CROSS JOIN LATERAL (
        SELECT e.context, e.cooperation_lineage, e.created_at, e.coroutine_name
        FROM scoop.message_event e WHERE e.type = 'EMITTED' AND e.message_id = a.id
        OFFSET 0
    ) e
),
waiting AS MATERIALIZED (
    SELECT r.message_id
    FROM (SELECT DISTINCT lineage[1] AS root, scoop.run_id(lineage) AS parent FROM asked WHERE is_copied) emitter
    CROSS JOIN LATERAL (
        SELECT r.message_id FROM scoop.run r WHERE r.root = emitter.root AND r.parent = emitter.parent OFFSET 0
    ) r
    UNION ALL
    SELECT r.message_id
    FROM asked
    CROSS JOIN LATERAL (SELECT r.message_id FROM scoop.run r WHERE r.root = asked.lineage[1] OFFSET 0) r
    WHERE NOT is_copied
),
-- counts, so that these are looked up, one by one
unhandled AS MATERIALIZED (
    SELECT a.*, CASE WHEN a.is_copied THEN a.copy_root ELSE a.lineage[1] END AS root,
           CASE WHEN a.is_copied THEN a.copy ELSE a.id END AS message_id
    FROM asked a
    WHERE a.id NOT IN (SELECT message_id FROM waiting)
      AND (SELECT count(*) FROM scoop.message_event s WHERE s.type = 'SEEN' AND s.message_id = a.id) = 0
      AND (SELECT count(*) FROM scoop.message_event t WHERE t.type = 'ROLLBACK_EMITTED' AND t.message_id = a.id) = 0
      AND (SELECT count(*) FROM scoop.handler h WHERE h.topic = a.topic AND h.retired_at IS NULL) > 0
      AND (
          SELECT count(*) FROM scoop.handler h
          WHERE h.topic = a.topic AND h.dropped_at IS NOT NULL AND h.since <= a.emitted_at
              AND h.retired_at > a.emitted_at
      ) = 0
      AND CASE WHEN a.is_copied THEN
          -- no run above is rolling back, or is about to
          (
              SELECT count(*)
              FROM unnest(a.lineage[2:]) AS above (run)
              CROSS JOIN LATERAL (
                  SELECT FROM scoop.message_event b
                  WHERE scoop.run_id(b.cooperation_lineage) = above.run
                    AND b.type::text = 'ROLLING_BACK' AND b.created_at > a.emitted_at
                  OFFSET 0
              ) b
          ) = 0
          AND (
              SELECT count(*)
              FROM unnest(a.lineage[2:]) AS above (run)
              CROSS JOIN LATERAL (
                  SELECT FROM scoop.run r
                  WHERE r.root = a.lineage[1] AND r.id = above.run
                    AND (r.giving_up OR r.rollback_since > a.emitted_at)
                  OFFSET 0
              ) r
          ) = 0
      ELSE
          (
              SELECT count(*) FROM scoop.message_event c
              WHERE c.type = 'CANCELLATION_REQUESTED' AND c.cooperation_lineage[1] = a.lineage[1]
                AND c.cooperation_lineage = a.lineage
          ) = 0
          AND (SELECT count(*) FROM scoop.relaunch l WHERE l.of_root = a.lineage[1]) = 0
      END
),
inserted_redeliveries AS (
    INSERT INTO scoop.redelivery (message_id, root, copy, redelivered_at)
    SELECT id, root, CASE WHEN is_copied THEN copy END, at FROM unhandled
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
),
launched AS MATERIALIZED (
    SELECT u.* FROM unhandled u WHERE u.id IN (SELECT message_id FROM inserted_redeliveries)
),
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT copy, topic, payload FROM launched WHERE is_copied
),
inserted_events AS (
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage, created_at, context)
    SELECT copy_event, copy, 'EMITTED', ARRAY[root], at, context FROM launched WHERE is_copied
)
INSERT INTO scoop.run
    (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
SELECT l.root, h.run, ARRAY[l.root, h.run], l.message_id, h.topic, h.handler,
       -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
       greatest(least(coalesce(l.due, l.at), l.give_up_at), l.at), l.at, l.context, l.give_up_at
FROM launched l
CROSS JOIN LATERAL (
    SELECT h.topic, h.handler, scoop.gen_uuid_v7() AS run
    FROM scoop.handler h WHERE h.topic = l.topic AND h.retired_at IS NULL OFFSET 0
) h
RETURNING root, handler::text
