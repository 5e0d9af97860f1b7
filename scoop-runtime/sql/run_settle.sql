-- What follows from these moves? Applies each to its run, if that still has the epoch the move
-- was made under, and raises it; otherwise to nothing. So a run that somebody took over is left
-- alone, and a settlement that is sent twice is applied once. Nor is a move applied, unless it is a
-- failure, if the run has to give up by now.
-- Locks: the rows of run that are settled, and those of their failed children.
-- $1 the settlements, an array of objects, $2 the worker's identifier in events, $3 what
-- `scoop_run.claim` must be in this transaction: null outside the transaction of a step
--
-- The planner must take each array for short, whatever it holds: then everything is looked up by
-- index, one by one, on empty tables as on large ones, and one plan serves all calls. It takes a
-- filter by equality for very selective, so each array has one that is always true. What belongs
-- to a settlement stays in its object, so that nothing has to be joined to it.
WITH settlement AS MATERIALIZED (
    SELECT s.*
    FROM jsonb_array_elements($1) AS settlement (object)
    CROSS JOIN jsonb_to_record(object) AS s (
        root uuid, id uuid, epoch bigint, ends text,
        step varchar, next_step int, iteration int, handler_iteration int, suspensions int,
        outputs jsonb, backward boolean, turns_back boolean, failure jsonb, rollback_failure jsonb,
        forgets text, event_count int, events jsonb, emissions jsonb, told jsonb, told_because jsonb,
        return_values jsonb, replied boolean, context jsonb, deadlines timestamptz[], may_give_up boolean
    )
    WHERE jsonb_typeof(object) = 'object'
),
-- the runs that the emitted messages start: one for each handler listed at this moment
delivery AS MATERIALIZED (
    SELECT s.id AS emitter, s.epoch, scoop.gen_uuid_v7() AS id,
           e.id AS message_id, e.detached_root, e.at, e.context, e.due, e.deadlines, h.topic, h.handler
    FROM settlement s
    CROSS JOIN jsonb_array_elements(s.emissions) AS emission (object)
    CROSS JOIN jsonb_to_record(object) AS e (
        id uuid, topic varchar, detached_root uuid, at int, context jsonb, due timestamptz,
        deadlines timestamptz[])
    CROSS JOIN LATERAL (
        SELECT topic, handler FROM scoop.handler h WHERE h.topic = e.topic AND h.until IS NULL OFFSET 0
    ) h
    WHERE jsonb_typeof(object) = 'object'
),
-- the finished runs that have to be undone: who handled the message and has not turned back
undoing AS MATERIALIZED (
    SELECT s.id AS parent, s.epoch, told.at,
           seen.cooperation_lineage AS lineage, seen.message_id, seen.coroutine_name AS handler,
           (SELECT m.topic FROM scoop.message m WHERE m.id = seen.message_id) AS topic,
           (SELECT e.context FROM scoop.message_event e
            WHERE e.type = 'COMMITTED' AND e.coroutine_name = seen.coroutine_name
              AND e.message_id = seen.message_id) AS context
    FROM settlement s
    CROSS JOIN jsonb_array_elements(s.told) AS told_message (object)
    CROSS JOIN jsonb_to_record(object) AS told (message_id uuid, at int)
    CROSS JOIN LATERAL (
        SELECT e.* FROM scoop.message_event e
        WHERE e.type = 'SEEN' AND e.message_id = told.message_id OFFSET 0
    ) seen
    CROSS JOIN LATERAL (
        SELECT count(*) AS times FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK'
          AND e.coroutine_name = seen.coroutine_name AND e.message_id = seen.message_id
    ) turned_back
    WHERE turned_back.times = 0 AND jsonb_typeof(object) = 'object'
),
-- the settled runs that have to wait now
waiting AS MATERIALIZED (
    SELECT emitter AS id, epoch FROM delivery WHERE detached_root IS NULL
    UNION
    SELECT parent, epoch FROM undoing
),
kept AS (
    UPDATE scoop.run r
    SET state = CASE
            WHEN s.ends = 'noted' THEN 'ended'
            WHEN (s.id, s.epoch) IN (SELECT id, epoch FROM waiting) THEN 'waiting'
            ELSE 'running'
        END::scoop.run_state,
        owner = CASE
            WHEN s.ends IS NULL AND (s.id, s.epoch) NOT IN (SELECT id, epoch FROM waiting) THEN r.owner
        END,
        epoch = r.epoch + 1,
        step = s.step, next_step = s.next_step, iteration = s.iteration,
        handler_iteration = s.handler_iteration, suspensions = s.suspensions, outputs = s.outputs,
        backward = s.backward, failure = s.failure, rollback_failure = s.rollback_failure,
        context = CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END,
        replied = s.replied,
        gives_up = r.gives_up AND NOT s.turns_back,
        give_up_at = (
            SELECT min(deadline) FROM unnest(s.deadlines) deadline
            WHERE (deadline > CASE WHEN s.turns_back THEN clock_timestamp() ELSE r.undoing_since END)
                IS NOT FALSE),
        undoing_since = CASE WHEN s.turns_back THEN clock_timestamp() ELSE r.undoing_since END,
        turned_back_at = CASE WHEN s.turns_back THEN clock_timestamp() ELSE r.turned_back_at END,
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
            + s.event_count * interval '1 microsecond',
        attempts = 0, retries = 0, reason = NULL
    FROM settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
      AND ($3::text IS NULL OR current_setting('scoop_run.claim', true) = $3)
      AND s.ends IS DISTINCT FROM 'unnoted'
      AND (s.may_give_up AND (r.gives_up OR r.give_up_at <= clock_timestamp())) IS NOT TRUE
    RETURNING r.root, r.id, s.epoch, r.lineage, r.handler, r.state, r.last_event_at, r.context,
        r.undoing_since IS NOT NULL AS undoing, r.give_up_at,
        s.events, s.emissions, s.return_values, s.told_because, s.forgets
),
gone AS (
    DELETE FROM scoop.run r
    USING settlement s
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
      AND ($3::text IS NULL OR current_setting('scoop_run.claim', true) = $3)
      AND s.ends = 'unnoted'
      AND (s.may_give_up AND (r.gives_up OR r.give_up_at <= clock_timestamp())) IS NOT TRUE
    RETURNING r.root, r.id, s.epoch, r.lineage, r.handler, 'ended'::scoop.run_state AS state,
        greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
            + s.event_count * interval '1 microsecond' AS last_event_at,
        CASE WHEN s.context IS NULL THEN r.context ELSE nullif(s.context, '{}') END AS context,
        r.undoing_since IS NOT NULL AS undoing, r.give_up_at,
        s.events, s.emissions, s.return_values, s.told_because, s.forgets
),
held AS (
    SELECT * FROM kept UNION ALL SELECT * FROM gone
),
-- the same without what it carries: read once for each delivery
place AS MATERIALIZED (
    SELECT id, epoch, root, lineage, last_event_at, told_because, context, undoing FROM held
),
published AS (
    INSERT INTO scoop.message (id, topic, payload)
    SELECT e.id, e.topic, coalesce(e.payload, 'null')
    FROM held
    CROSS JOIN jsonb_array_elements(held.emissions) AS emission (object)
    CROSS JOIN jsonb_to_record(object) AS e (id uuid, topic varchar, payload jsonb)
),
-- a microsecond apart and in order, since participants order events by this time
recorded AS (
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, exception, next_step, child_failure_handler_iteration, context)
    SELECT e.message_id, e.type::scoop.message_event_type,
           CASE WHEN e.detached_root IS NULL THEN held.handler END,
           CASE WHEN e.detached_root IS NULL THEN $2 END,
           e.step,
           CASE WHEN e.detached_root IS NULL THEN held.lineage ELSE ARRAY[e.detached_root] END,
           held.last_event_at - e.until_last * interval '1 microsecond',
           CASE WHEN e.type = 'ROLLBACK_EMITTED' THEN held.told_because ELSE e.exception END,
           e.next_step, e.handler_iteration,
           CASE WHEN e.context IS NULL THEN held.context ELSE nullif(e.context, '{}') END
    FROM held
    CROSS JOIN jsonb_array_elements(held.events) AS event (object)
    CROSS JOIN jsonb_to_record(object) AS e (
        until_last int, message_id uuid, type text, step varchar, next_step int,
        handler_iteration int, exception jsonb, detached_root uuid, context jsonb)
    -- a part of the hierarchy may have been told before, on request
    ON CONFLICT (message_id, type) WHERE type = 'ROLLBACK_EMITTED' DO NOTHING
),
returned AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT held.lineage, held.handler, returned.name, coalesce(returned.value, 'null')
    FROM held
    CROSS JOIN jsonb_array_elements(held.return_values) AS return_value (object)
    CROSS JOIN jsonb_to_record(object) AS returned (name varchar, value jsonb)
),
delivered AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         context, undoing_since, give_up_at)
    SELECT coalesce(d.detached_root, place.root),
           d.id,
           CASE WHEN d.detached_root IS NULL THEN place.id END,
           CASE WHEN d.detached_root IS NULL THEN place.lineage ELSE ARRAY[d.detached_root] END || d.id,
           d.message_id, d.topic, d.handler,
           -- whoever has to give up before it is due does so in time
           least(coalesce(d.due, clock_timestamp() + d.at * interval '1 microsecond'), give_up.at),
           place.last_event_at,
           CASE WHEN d.context IS NULL THEN place.context ELSE nullif(d.context, '{}') END,
           CASE WHEN place.undoing AND d.detached_root IS NULL THEN clock_timestamp() END,
           give_up.at
    FROM delivery d
    JOIN place ON place.id = d.emitter AND place.epoch = d.epoch
    CROSS JOIN LATERAL (
        SELECT min(deadline) AS at FROM unnest(d.deadlines) deadline
        WHERE NOT place.undoing OR d.detached_root IS NOT NULL OR deadline > clock_timestamp()
    ) give_up
    RETURNING handler
),
sent_back AS (
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
         backward, told, failure, undoing_since, epoch, first_epoch, context)
    SELECT place.root,
           u.lineage[cardinality(u.lineage)],
           place.id,
           u.lineage, u.message_id, u.topic, u.handler,
           clock_timestamp() + u.at * interval '1 microsecond',
           place.last_event_at,
           true, true, place.told_because, clock_timestamp(),
           -- whoever still holds an epoch of the way forward holds none of the way back
           (extract(epoch FROM place.last_event_at) * 1000000)::bigint,
           (extract(epoch FROM place.last_event_at) * 1000000)::bigint,
           -- what it knew itself, and over it what the parent knows now
           nullif(coalesce(u.context, '{}') || coalesce(place.context, '{}'), '{}')
    FROM undoing u
    JOIN place ON place.id = u.parent AND place.epoch = u.epoch
    RETURNING handler
),
forgotten AS (
    DELETE FROM scoop.run child
    USING held
    WHERE held.forgets IS NOT NULL
      AND child.root = held.root AND child.parent = held.id AND child.state = 'ended'
      AND (held.forgets = 'all' OR child.rollback_failure IS NULL)
)
SELECT held.id, held.epoch, held.state::text AS state, held.last_event_at,
       (held.give_up_at <= clock_timestamp()) IS TRUE AS overdue,
       ARRAY(SELECT handler FROM delivered UNION SELECT handler FROM sent_back)::text[] AS started
FROM held
