-- Retries a stuck run: no definition fitted it, or the results of too many attempts in a row are unknown. Such a run has
-- three attempts, and stays a suspect: it may still be what ends its workers. One that awaits a signal and does not give up awaits it
-- again, for as long as before.
-- Locks: its row of run.
-- $1 root, $2 id, $3 how many attempts may have an unknown result
UPDATE scoop.run r
SET state = 'ready', parked_since = NULL,
    ready_at = CASE WHEN r.giving_up OR (r.awaited).signal IS NULL THEN clock_timestamp()
                    ELSE greatest(coalesce(r.parked_since, r.ready_at), clock_timestamp()) END,
    reason = NULL, reserved_for = 0, refused_by = NULL,
    tries = CASE WHEN (r.tries).unknown_attempts > $3 - 3 THEN
        ROW((r.tries).attempts, (r.tries).retries, $3 - 3, (r.tries).tried_under)::scoop.tries ELSE r.tries END
WHERE r.root = $1 AND r.id = $2 AND r.state = 'stuck'
RETURNING handler
