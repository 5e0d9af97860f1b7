-- Deletes pending runs of handlers that were retired with their pending runs dropped: a launch that began before and committed
-- after that has added them. Returns the runs that wait for them. Without such a queue, no row of run is read.
-- Locks: the rows of run that go.
WITH dropped AS MATERIALIZED (
    SELECT q.handler, q.topic FROM scoop.abandoned_queue q
    WHERE q.reserved_for = 0 AND (
        SELECT bool_and(h.dropped_at IS NOT NULL) FROM scoop.handler h WHERE h.topic = q.topic AND h.handler = q.handler)
),
gone AS (
    DELETE FROM scoop.run r
    USING dropped
    WHERE r.state = 'ready' AND r.handler = dropped.handler AND r.topic = dropped.topic AND r.reserved_for = 0
      AND r.epoch = 0 AND NOT r.rollback_requested
    RETURNING r.root, r.parent, r.last_event_at, r AS run
),
inserted_end AS (
    INSERT INTO scoop.ended_run SELECT e.* FROM gone CROSS JOIN LATERAL scoop.dropped_run(gone.run) e
)
SELECT root, parent AS id, max(last_event_at) AS at FROM gone WHERE parent IS NOT NULL GROUP BY root, parent
