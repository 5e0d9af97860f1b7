-- Deletes the pending runs of a retired handler, and returns the runs that wait for them.
-- Locks: its rows of handler, the rows of run that go.
-- $1 topic, $2 handler
WITH dropped AS (
    UPDATE scoop.handler
    SET dropped_at = clock_timestamp()
    WHERE topic = $1 AND handler = $2 AND retired_at IS NOT NULL AND dropped_at IS NULL
),
gone AS (
    DELETE FROM scoop.run r
    WHERE r.state = 'ready' AND r.handler = $2 AND r.topic = $1 AND r.epoch = 0 AND NOT r.rollback_requested
    RETURNING r.root, r.parent, r.last_event_at AS at, r AS run
),
inserted_end AS (
    INSERT INTO scoop.ended_run SELECT e.* FROM gone CROSS JOIN LATERAL scoop.dropped_run(gone.run) e
)
SELECT root, parent, at FROM gone
