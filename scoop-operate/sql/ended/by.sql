-- The event of the end of an ended run `r`.
LEFT JOIN LATERAL (
    SELECT e.coroutine_identifier AS worker, e.step FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = r.id AND e.created_at = r.ended_at AND e.coroutine_name = r.handler
      AND e.type = CASE r.outcome WHEN 'committed' THEN 'COMMITTED' ELSE 'ROLLED_BACK' END::scoop.message_event_type
    LIMIT 1
) e ON true
