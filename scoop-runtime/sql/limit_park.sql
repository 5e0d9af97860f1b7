-- Parks due runs whose keys have no free place, or have reached their rate: they leave their queues until it is their turn, so that
-- they hold up no run of another key. One whose deadline is ahead is due then, and ends without a place. A wait for a signal is over, as for a run that is claimed.
-- Each run is found by its id, as in limit_claim.sql.
-- Locks: the rows of run, without those that other transactions have locked.
-- Returns the keys, with how many runs of each, and the queue time of the first.
-- $1 roots, $2 ids and $3 keys of the runs (triples)
WITH due AS MATERIALIZED (
    SELECT r.ctid
    FROM unnest($1::uuid[], $2::uuid[]) AS over (root, id)
    CROSS JOIN LATERAL (
        SELECT r.ctid FROM scoop.run r
        WHERE r.root = over.root AND r.id = over.id AND r.state::text = 'ready'
        FOR UPDATE SKIP LOCKED
    ) r
),
parked AS (
    UPDATE scoop.run r
    SET ready_at = CASE WHEN NOT r.giving_up AND r.give_up_at > clock_timestamp() THEN r.give_up_at ELSE '9999-12-31 00:00+00' END,
        -- earlier if it was parked before, and is due since it was cancelled
        parked_since = least(r.parked_since, r.ready_at),
        limit_key = ($3::text[])[array_position($2::uuid[], r.id)],
        awaited = NULL
    WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM due))
    RETURNING r.limit_key, scoop.queue_time(r.parked_since, scoop.priority_of(r.context)) AS queue_time
)
SELECT p.limit_key::text AS key, count(*) AS runs, greatest('0001-01-01 00:00+00', min(p.queue_time)) AS since
FROM parked p
GROUP BY p.limit_key
