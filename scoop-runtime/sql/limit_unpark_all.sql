-- Returns all parked runs of these handlers to their queues: their limit has changed, and with it what their keys come from.
-- Locks: their rows, without those that other transactions have locked: limit_unpark_orphaned.sql, or a claim under the new limit,
-- returns these.
-- $1 handlers
WITH parked AS MATERIALIZED (
    SELECT r.ctid FROM scoop.run r
    WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = ANY ($1::text[])
    FOR UPDATE SKIP LOCKED
)
UPDATE scoop.run r
SET ready_at = least(r.parked_since, clock_timestamp()), parked_since = NULL, limit_key = NULL
WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM parked))
