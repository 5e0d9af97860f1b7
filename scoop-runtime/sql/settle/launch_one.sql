-- The run launches messages, and waits if they have a handler; else it goes on in this worker. Its SUSPENDED is later than the
-- events of its messages.
-- Arrays with an element for each message: $24 is not read, but the server needs its type, $25 how many events follow it, $26 its
-- id, $27 the id of its event, $28 its topic, $29 its payload, $30 its context if that is not the run's, $31 the id of the run of its
-- first handler
settled_run AS (
    UPDATE scoop.run r
    SET {progress},
        context = {context},
        last_event_at = {event_at}
            OPERATOR(pg_catalog.+) (s.message_count OPERATOR(pg_catalog.*) interval '1 microsecond'),
        state = CASE WHEN s.waits THEN 'waiting' ELSE 'running' END::scoop.run_state,
        owner = CASE WHEN NOT s.waits THEN r.owner END
    FROM (
        SELECT settlement.*, EXISTS (
                   SELECT FROM scoop.handler h
                   WHERE h.topic OPERATOR(pg_catalog.=) ANY ($28::varchar[]) AND h.retired_at IS NULL
               ) AS waits
        FROM settlement
        WHERE $24::pg_catalog.int8[] IS NOT NULL
    ) s
    WHERE {fence}
    RETURNING r.state, r.message_id, r.handler, r.lineage, r.context, r.last_event_at, r.rollback_since
),
-- A list that is taken apart in a FROM would be written aside first. The condition on the number always holds: it makes the lists
-- look short, so that sessions of the user keep a generic plan.
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT m.id, m.topic, m.payload
    FROM settled_run
    CROSS JOIN LATERAL (
        SELECT pg_catalog.unnest($26::pg_catalog.uuid[]) AS id, pg_catalog.unnest($28::varchar[]) AS topic,
               pg_catalog.unnest($29::pg_catalog.jsonb[]) AS payload
    ) m
    -- a message without a payload exists: see message_store.sql
    WHERE m.payload IS NOT NULL
),
-- a run for each handler that is subscribed now
child_run AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, rollback_since)
    SELECT $1, h.run, $2, s.lineage OPERATOR(pg_catalog.||) h.run, m.id, h.topic, h.handler, {message_ready_at},
           s.last_event_at, {message_context},
           CASE WHEN s.rollback_since IS NOT NULL THEN pg_catalog.clock_timestamp() END
    FROM (SELECT settled_run.*, $20::int AS message_count FROM settled_run) s
    CROSS JOIN LATERAL (
        SELECT pg_catalog.unnest($25::int[]) AS until_last, pg_catalog.unnest($26::pg_catalog.uuid[]) AS id,
               pg_catalog.unnest($28::varchar[]) AS topic, pg_catalog.unnest($30::pg_catalog.jsonb[]) AS context,
               pg_catalog.unnest($31::pg_catalog.uuid[]) AS run
    ) m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN m.run ELSE scoop.gen_uuid_v7()
               END AS run
        FROM scoop.handler h WHERE h.topic OPERATOR(pg_catalog.=) m.topic AND h.retired_at IS NULL OFFSET 0
    ) h
    WHERE m.until_last OPERATOR(pg_catalog.>=) 1 AND m.until_last OPERATOR(pg_catalog.<=) $20
    RETURNING handler
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    SELECT m.event, m.id, 'EMITTED'::scoop.message_event_type, s.handler, $23::pg_catalog.text, $4::varchar, s.lineage, {message_at},
           NULL::pg_catalog.jsonb, {message_context}, NULL::int, NULL::int, NULL::pg_catalog.text, NULL::int
    FROM settled_run s
    CROSS JOIN LATERAL (
        SELECT pg_catalog.unnest($25::int[]) AS until_last, pg_catalog.unnest($26::pg_catalog.uuid[]) AS id,
               pg_catalog.unnest($27::pg_catalog.uuid[]) AS event, pg_catalog.unnest($30::pg_catalog.jsonb[]) AS context
    ) m
    WHERE m.until_last OPERATOR(pg_catalog.>=) 1 AND m.until_last OPERATOR(pg_catalog.<=) $20
    UNION ALL
    {suspended_event}
)
