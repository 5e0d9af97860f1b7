-- The runs wait if they have children, else they go on in this worker.
awaited_children AS (
    SELECT parent, pg_catalog.array_agg(handler::pg_catalog.text) AS ready_handlers
    FROM child_run GROUP BY parent
),
updated_run AS (
    UPDATE scoop.run r
    SET {progress},
        context = s.context,
        last_event_at = s.last_event_at,
        state = CASE WHEN awaited_children.parent IS NULL THEN 'running' ELSE 'waiting' END::scoop.run_state,
        owner = CASE WHEN awaited_children.parent IS NULL THEN r.owner END
    FROM settled_run s
    LEFT JOIN awaited_children ON awaited_children.parent OPERATOR(pg_catalog.=) s.id
    WHERE r.root OPERATOR(pg_catalog.=) s.root AND r.id OPERATOR(pg_catalog.=) s.id
    RETURNING r.id, s.epoch, r.state::pg_catalog.text, r.last_event_at,
        coalesce(awaited_children.ready_handlers, '{}') AS ready_handlers
)
