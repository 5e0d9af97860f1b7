-- Marks runs of these sagas as stuck that wait for a signal which no living definition of their saga awaits any more, although a
-- former one did; and reports that to the handlers of `Failed`. Sagas without a living worker are left out. Without such a
-- signal, which the definitions show, no row of run is read.
-- Locks: the rows of run that become stuck.
-- $1 handlers
WITH living AS MATERIALIZED (
    SELECT DISTINCT own.handler, own.definition
    FROM scoop.worker w
    CROSS JOIN LATERAL unnest(w.handlers, w.definitions) AS own (handler, definition)
    WHERE own.handler = ANY ($1::text[])
),
awaited AS MATERIALIZED (
    SELECT DISTINCT d.handler::text AS handler, d.id, step.value ->> 'awaits' AS signal
    FROM scoop.definition d
    CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(d.steps) = 'array' THEN d.steps ELSE '[]' END) step
    WHERE d.handler IN (SELECT handler FROM living) AND step.value ->> 'awaits' IS NOT NULL
),
removed AS MATERIALIZED (
    SELECT handler, signal FROM awaited
    EXCEPT
    SELECT a.handler, a.signal FROM awaited a JOIN living l ON l.handler = a.handler AND l.definition = a.id
)
UPDATE scoop.run r
SET state = 'stuck', parked_since = r.ready_at, ready_at = clock_timestamp(),
    reason = format('the run waits for the signal `%s` with the key `%s`, which no step of saga `%s` awaits any more; let a '
        'step await it again, or cancel the run and then retry it, so that it rolls back', (r.awaited).signal, (r.awaited).key, r.handler)
FROM removed
WHERE r.state = 'ready' AND (r.awaited).signal = removed.signal AND r.handler = removed.handler
  AND NOT r.giving_up AND r.ready_at > clock_timestamp()
RETURNING r.id, scoop.send_failed(
    'stuck', r.root, r.id, r.handler, r.message_id, r.last_event_at, r.step, scoop.stuck_failure(r.handler, r.reason), NULL)
