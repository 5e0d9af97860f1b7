-- Which of these runs of a saga with a limit count for it, and what have claims done since? Those in execution count; where runs are
-- serial, all that have a key, until their ends. It follows limit_lock.sql in its transaction. The known row is among the result: without it, others may have been deleted, too.
-- Each run is looked up by its id, so that no run that has ended is read: the index of running runs is ruled out.
-- Locks: nothing.
-- $1 saga, $2 number of the newest known row, $3 roots, $4 ids and $5 keys of runs (triples), $6 whether runs are serial
SELECT done.number, done.root, done.id, done.key,
       -- in a range that programs can read
       CASE WHEN done.parked_since > '0001-01-01 00:00+00' THEN done.parked_since END AS parked_since,
       greatest('0001-01-01 00:00+00', done.ready_at) AS ready_at, done.ready_at IS NOT NULL AS have_returned,
       coalesce(run.counts, false) AS counts
FROM (
    SELECT NULL::bigint AS number, known.root, known.id, known.key, NULL::timestamptz AS parked_since, NULL::timestamptz AS ready_at
    FROM unnest($3::uuid[], $4::uuid[], $5::text[]) AS known (root, id, key)
    UNION ALL
    SELECT l.number, l.root, l.run, l.key::text, l.parked_since, l.ready_at FROM scoop.limit_log l WHERE l.saga = $1 AND l.number >= $2
) done
LEFT JOIN LATERAL (
    SELECT true AS counts FROM scoop.run r
    WHERE r.root = done.root AND r.id = done.id
      AND CASE WHEN $6 THEN scoop.held_key(r.state, r.limit_key, r.parked_since) = done.key ELSE r.state::text = 'running' END
    OFFSET 0
) run ON true
ORDER BY done.number NULLS FIRST
