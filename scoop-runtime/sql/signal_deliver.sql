-- Hands the first kept signal of each name and key to all runs that await it, as the output of their step, and makes
-- these runs ready. Returns their handlers. It runs after each commit of a signal and after each commit of a run that
-- awaits one: of two at the same time, the later one sees both. A run that has to give up, or whose time is over, gets
-- none.
-- Locks: the signals, in the order of their keys; then the rows of run. It waits for any of these for a short time only, and
-- then does nothing and fails: one locked row holds up no delivery of other keys.
-- A signal that no program can read arrives as an object with `scoop:unreadable`, which no step reads either.
-- $1 names and $2 keys (pairs), $3 null, or a transaction: those of the kept signals that this and later ones have sent,
-- $4 runs, $5 whether only these get a signal; or all others, $6 for how long it waits for a lock, such as 20ms
WITH limited AS MATERIALIZED (SELECT set_config('lock_timeout', $6::text, true)),
asked AS MATERIALIZED (
    SELECT name, key FROM unnest($1::text[], $2::text[]) AS a (name, key)
    UNION
    SELECT s.name, s.key
    FROM scoop.signal s
    -- with a limit, so that runs are looked up, and not read all
    CROSS JOIN LATERAL (
        SELECT FROM scoop.run r WHERE r.state = 'ready' AND (r.awaited).signal = s.name AND (r.awaited).key = s.key LIMIT 1
    ) awaited
    WHERE s.sent_in >= $3::text::xid8 AND s.delivered_at IS NULL AND NOT s.expired
      AND s.kept_until > (SELECT clock_timestamp())
    ORDER BY name, key
),
oldest AS MATERIALIZED (
    SELECT s.id, s.name, s.key, s.traceparent,
           CASE WHEN scoop.is_readable(s.payload, 16777216) THEN s.payload
                ELSE jsonb_build_object('scoop:unreadable', 'it is larger than 16 MiB, has a number beyond 1.7e308, or is '
                    'nested deeper than 100') END AS payload
    FROM asked
    CROSS JOIN LATERAL (
        SELECT s.id, s.name, s.key, s.payload, s.traceparent FROM scoop.signal s
        WHERE s.name = asked.name AND s.key = asked.key AND s.delivered_at IS NULL AND NOT s.expired
          AND s.kept_until > (SELECT clock_timestamp())
          AND (SELECT count(*) FROM limited) = 1  -- before the first lock
        ORDER BY s.kept_until, s.sent_at, s.id
        LIMIT 1
        FOR UPDATE
    ) s
),
waiting AS MATERIALIZED (
    SELECT r.root, r.id, o.id AS signal, o.payload, o.traceparent
    FROM oldest o
    JOIN scoop.run r ON r.state = 'ready' AND (r.awaited).signal = o.name AND (r.awaited).key = o.key
        AND r.step IS NOT NULL AND NOT r.giving_up AND r.ready_at > (SELECT clock_timestamp())
    ORDER BY r.root, r.id
    FOR UPDATE OF r
),
reached AS (
    UPDATE scoop.run r
    SET ready_at = clock_timestamp(), awaited = NULL, signalled_by = w.traceparent,
        outputs = coalesce(r.outputs, '{}') || jsonb_build_object(r.step, w.payload)
    FROM waiting w
    WHERE r.root = w.root AND r.id = w.id AND (w.id = ANY ($4::uuid[])) = $5
    RETURNING r.handler, r.lineage, r.step, r.suspensions, w.signal, w.payload
),
stored AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, 'Output of ' || step || '#' || lpad((greatest(suspensions, 1) - 1)::text, 10, '0'), payload
    FROM reached
    ON CONFLICT DO NOTHING
),
delivered AS (
    UPDATE scoop.signal s
    SET delivered_at = clock_timestamp(), reached = counted.runs
    FROM (SELECT signal, count(*) AS runs FROM reached GROUP BY signal) counted
    -- as an array, so that the planner looks them up
    WHERE s.id = counted.signal AND s.id = ANY (ARRAY(SELECT signal FROM reached))
)
SELECT DISTINCT handler::text FROM reached
