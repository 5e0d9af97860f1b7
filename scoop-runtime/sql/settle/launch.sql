-- The messages that the runs launch.
-- Arrays with an element for each message: $24 which of the runs launches it, from 1, $25 how many events follow it,
-- $26 its id, $27 the id of its event, $28 its topic, $29 its payload, $30 its context if that is not the run's,
-- $31 the id of the run of its first handler
launched AS MATERIALIZED (
    SELECT m.id, m.topic, m.event, m.run,
           {message_context} AS context,
           {message_at} AS at,
           {message_ready_at} AS ready_at,
           s.root, s.id AS parent, s.handler, s.step, s.lineage, s.rollback_since, s.last_event_at
    FROM unnest(
        $24::pg_catalog.int8[], $25::int[], $26::pg_catalog.uuid[], $27::pg_catalog.uuid[], $28::varchar[],
        $30::pg_catalog.jsonb[], $31::pg_catalog.uuid[]
    ) AS m (nth, until_last, id, event, topic, context, run)
    JOIN settled_run s ON s.nth OPERATOR(pg_catalog.=) m.nth
),
-- Payloads may be large. A list that is taken apart here goes into the table element by element; in a FROM, or in a CTE
-- that others read, it would be written to a file first, and read again by each of them.
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT m.id, m.topic, m.payload
    FROM (
        SELECT pg_catalog.unnest($24::pg_catalog.int8[]) AS nth, pg_catalog.unnest($26::pg_catalog.uuid[]) AS id,
               pg_catalog.unnest($28::varchar[]) AS topic, pg_catalog.unnest($29::pg_catalog.jsonb[]) AS payload
    ) m
    WHERE m.nth OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT nth FROM settled_run))
      -- a message without a payload exists: see message_store.sql
      AND m.payload IS NOT NULL
),
-- a run for each handler that is subscribed now
child_run AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, rollback_since)
    SELECT m.root, h.run, m.parent, m.lineage OPERATOR(pg_catalog.||) h.run, m.id, h.topic, h.handler, m.ready_at,
           m.last_event_at, m.context, CASE WHEN m.rollback_since IS NOT NULL THEN pg_catalog.clock_timestamp() END
    FROM launched m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN m.run ELSE scoop.gen_uuid_v7()
               END AS run
        FROM scoop.handler h WHERE h.topic OPERATOR(pg_catalog.=) m.topic AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING parent, handler
),
inserted_events AS (
    INSERT INTO scoop.message_event
        ({event_columns})
    SELECT event, id, 'EMITTED'::scoop.message_event_type, handler, $23, step, lineage, at, NULL::pg_catalog.jsonb,
           context, NULL::int, NULL::int, NULL::pg_catalog.text, NULL::int
    FROM launched
    UNION ALL
    {suspended_event}
)
