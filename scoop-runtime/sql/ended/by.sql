-- The event of the end of an ended run `r`.
LEFT JOIN LATERAL (
    SELECT e.coroutine_identifier AS worker, e.step FROM scoop.message_event e
    WHERE e.message_id = r.message_id AND e.coroutine_name = r.handler
      AND e.type = CASE r.outcome WHEN 'committed' THEN 'COMMITTED' ELSE 'ROLLED_BACK' END::scoop.message_event_type
      -- the condition of the index
      AND e.type IN ('SEEN', 'COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK')
    OFFSET 0
) e ON true
