-- Has a run wait again for the signal that its step cannot read: as before, until the same time, without the output. A signal
-- that has reached no other run is out of the kept ones, as if its time were over. Returns the name and the key.
-- Locks: the row of run; then the signal.
-- $1 root, $2 run, $3 epoch, $4 why its step cannot read it
WITH refusing AS MATERIALIZED (
    SELECT r.root, r.id, r.handler, r.lineage, r.step, r.suspensions, r.ready_at, began.wait
    FROM scoop.run r
    CROSS JOIN LATERAL (
        SELECT e.wait FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = r.id AND e.step = r.step AND e.wait IS NOT NULL
        ORDER BY e.created_at DESC
        LIMIT 1
    ) began
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
    FOR NO KEY UPDATE OF r
),
forgotten AS (
    DELETE FROM scoop.return_value v
    USING refusing
    WHERE scoop.run_id(v.cooperation_lineage) = refusing.id AND v.handler_name = refusing.handler
      AND v.variable_name
          = 'Output of ' || refusing.step || '#' || lpad((greatest(refusing.suspensions, 1) - 1)::text, 10, '0')
),
used_up AS (
    UPDATE scoop.signal s
    SET reached = s.reached - 1,
        delivered_at = CASE WHEN s.reached > 1 THEN s.delivered_at END,
        expired = s.reached <= 1
    WHERE s.id = (
        SELECT o.id FROM scoop.signal o, refusing
        -- the row is ready since the delivery
        WHERE coalesce(o.delivered_at, o.kept_until) BETWEEN refusing.ready_at - interval '1 minute' AND clock_timestamp()
          AND o.delivered_at IS NOT NULL AND o.reached > 0
          AND o.name = refusing.wait #>> '{signal,name}' AND o.key = refusing.wait #>> '{signal,key}'
        ORDER BY o.delivered_at DESC
        LIMIT 1
    )
)
UPDATE scoop.run r
SET state = 'ready',
    owner = NULL,
    ready_at = CASE WHEN r.giving_up THEN clock_timestamp() ELSE greatest(
        least(coalesce((refusing.wait ->> 'until')::timestamptz, '9999-12-31 23:59:59.999999+00'), r.give_up_at),
        clock_timestamp()) END,
    awaited = scoop.awaited_signal(refusing.wait),
    signalled_by = NULL,
    outputs = nullif(r.outputs - r.step, '{}'),
    tries = NULL, reason = $4
FROM refusing
WHERE r.root = refusing.root AND r.id = refusing.id
RETURNING (r.awaited).signal, (r.awaited).key AS signal_key
