-- Returns all parked runs of these handlers to their queues, and takes their keys from all runs: their limit has changed, and with it
-- what their keys come from. A run counts under its new key once it is claimed.
-- The conditions on the id and on what has ended always hold: they choose the index of lists.
-- Locks: their rows, without those that other transactions have locked: limit_unpark_orphaned.sql, or a claim under the new limit,
-- returns those that are parked.
-- $1 handlers
WITH keyed AS MATERIALIZED (
    SELECT r.ctid FROM scoop.run r
    WHERE r.state = ANY ('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) AND r.handler = ANY ($1::text[])
      AND r.limit_key IS NOT NULL AND r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
    FOR UPDATE SKIP LOCKED
)
UPDATE scoop.run r
SET ready_at = CASE WHEN r.state = 'ready' AND r.parked_since IS NOT NULL THEN least(r.parked_since, clock_timestamp()) ELSE r.ready_at END,
    parked_since = CASE WHEN r.state <> 'ready' THEN r.parked_since END,
    limit_key = NULL
WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM keyed))
