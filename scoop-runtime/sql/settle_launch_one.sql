-- Settles one run as settle_launch_many.sql does, which has the same rule, without the cost of its arrays.
-- Locks: the row of run.
-- $1 root, $2 run, $3 epoch, $4 what `scoop_run.claim` must be in this transaction: null outside the
-- transaction of a step, $5 the worker's identifier in events, $6 to $10 the step, where it jumps, how often
-- it was repeated, how often the children's failures were handled, and how many came before it, $11 what the steps
-- returned, $12 whether it replied, $13 the context if that has changed, $14 and $15 what the step returned,
-- $16 the id of the event, $17 how many messages it launched
-- Arrays with an element for each message: $18 how many events follow it, $19 its id, $20 its topic, $21 its payload,
-- $22 its context if that is not the run's, $23 the id of its event, $24 the id of the run of its first handler
-- $25 the step that was chosen to run next, $26 the definition under which the step completed,
-- $27 how often each step completed
WITH locked_run AS MATERIALIZED (
    SELECT r.message_id, r.handler, r.lineage, r.rollback_since,
           CASE WHEN $13::pg_catalog.jsonb IS NULL THEN r.context WHEN $13 OPERATOR(pg_catalog.<>) '{}' THEN $13 END
               AS new_context,
           greatest(pg_catalog.clock_timestamp(), r.last_event_at OPERATOR(pg_catalog.+) interval '1 microsecond')
               OPERATOR(pg_catalog.+) ($17::int OPERATOR(pg_catalog.*) interval '1 microsecond') AS last_event_at
    FROM scoop.run r
    WHERE r.root OPERATOR(pg_catalog.=) $1 AND r.id OPERATOR(pg_catalog.=) $2 AND r.epoch OPERATOR(pg_catalog.=) $3
      AND r.state OPERATOR(pg_catalog.=) 'running'
      AND ($4::pg_catalog.text IS NULL OR pg_catalog.current_setting('scoop_run.claim', true) OPERATOR(pg_catalog.=) $4)
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, pg_catalog.clock_timestamp())
    FOR UPDATE OF r
),
launched AS MATERIALIZED (
    SELECT m.id, m.topic, m.event, m.run,
           CASE WHEN m.context IS NULL THEN locked_run.new_context
                WHEN m.context OPERATOR(pg_catalog.<>) '{}' THEN m.context END AS context,
           locked_run.last_event_at
               OPERATOR(pg_catalog.-) (m.until_last OPERATOR(pg_catalog.*) interval '1 microsecond') AS at,
           -- by the clock, regardless of the last event of the run
           pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
               (($17::int OPERATOR(pg_catalog.-) m.until_last) OPERATOR(pg_catalog.*) interval '1 microsecond')
               AS ready_at,
           locked_run.handler, locked_run.lineage, locked_run.rollback_since, locked_run.last_event_at
    FROM unnest(
        $18::int[], $19::pg_catalog.uuid[], $20::varchar[], $22::pg_catalog.jsonb[], $23::pg_catalog.uuid[],
        $24::pg_catalog.uuid[]
    ) AS m (until_last, id, topic, context, event, run)
    CROSS JOIN locked_run
    -- always so: a range makes the planner take the lists for short, and settle for one plan
    WHERE m.until_last OPERATOR(pg_catalog.>=) 1 AND m.until_last OPERATOR(pg_catalog.<=) $17
),
-- Payloads may be large. A list that is taken apart here goes into the table element by element; in a FROM, or in a CTE
-- that others read, it would be written to a file first, and read again by each of them.
inserted_messages AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT m.id, m.topic, m.payload
    FROM (
        SELECT pg_catalog.unnest($18::int[]) AS until_last, pg_catalog.unnest($19::pg_catalog.uuid[]) AS id,
               pg_catalog.unnest($20::varchar[]) AS topic, pg_catalog.unnest($21::pg_catalog.jsonb[]) AS payload
    ) m
    WHERE m.until_last OPERATOR(pg_catalog.>=) 1 AND m.until_last OPERATOR(pg_catalog.<=) $17
      AND (SELECT pg_catalog.count(*) FROM locked_run) OPERATOR(pg_catalog.>) 0
      -- a message without a payload exists: see message_store.sql
      AND m.payload IS NOT NULL
),
-- a run for each handler that is subscribed now
delivered AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, rollback_since)
    SELECT $1, h.run, $2, m.lineage OPERATOR(pg_catalog.||) h.run, m.id, h.topic, h.handler, m.ready_at,
           m.last_event_at, m.context, CASE WHEN m.rollback_since IS NOT NULL THEN pg_catalog.clock_timestamp() END
    FROM launched m
    CROSS JOIN LATERAL (
        SELECT h.topic, h.handler,
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN m.run ELSE scoop.gen_uuid_v7()
               END AS run
        FROM scoop.handler h WHERE h.topic OPERATOR(pg_catalog.=) m.topic AND h.retired_at IS NULL OFFSET 0
    ) h
    RETURNING handler
),
-- null if there are no children
awaited_children AS MATERIALIZED (
    SELECT pg_catalog.array_agg(DISTINCT handler::pg_catalog.text) AS ready_handlers FROM delivered
),
updated_run AS (
    UPDATE scoop.run r
    SET state = CASE WHEN awaited_children.ready_handlers IS NULL THEN 'running' ELSE 'waiting' END::scoop.run_state,
        owner = CASE WHEN awaited_children.ready_handlers IS NULL THEN r.owner END,
        epoch = r.epoch OPERATOR(pg_catalog.+) 1,
        step = $6, jump = $25, definition = $26, iteration = $8, handler_iteration = $9, suspensions = $10,
        completions = $27, outputs = $11, replied = $12, context = locked_run.new_context,
        give_up_at = NULL, last_event_at = locked_run.last_event_at,
        attempts = 0, retries = 0, reason = NULL
    FROM locked_run
    CROSS JOIN awaited_children
    WHERE r.root OPERATOR(pg_catalog.=) $1 AND r.id OPERATOR(pg_catalog.=) $2
    RETURNING r.state::pg_catalog.text, r.last_event_at, coalesce(awaited_children.ready_handlers, '{}')
        AS ready_handlers
),
-- a microsecond apart and in order, since participants order events by this time
inserted_events AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, context,
         next_step, child_failure_handler_iteration, jump, definition)
    SELECT event, id, 'EMITTED'::scoop.message_event_type, handler, $5, $6, lineage, at, context, NULL::int, NULL::int,
           NULL::varchar, NULL::int
    FROM launched
    UNION ALL
    SELECT $16, message_id, 'SUSPENDED', handler, $5, $6, lineage, last_event_at, new_context, $7, $9, $25, $26
    FROM locked_run
),
inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, $14, coalesce($15::pg_catalog.jsonb, 'null') FROM locked_run WHERE $14::varchar IS NOT NULL
)
SELECT $2 AS id, $3 AS epoch, state, last_event_at, false AS overdue, ready_handlers FROM updated_run
