-- Lists runs whose rollback failed, newest first. `failed_below` has the runs below it that come first: those because of which it
-- failed. A forged row is listed with what there is.
-- Locks: nothing.
-- $1 older than this (nothing: the newest), $2 and if as old, with a smaller id than this, $3 how many,
-- $4 the maximum length of `failed_below`, $5 how many runs below each are read for it at most
SELECT r.root, r.id, r.lineage, r.message_id, r.handler::text, r.topic::text, r.step::text,
       scoop.shown_failure(r.rollback_failure) AS failure, r.ready_at AS failed_at,
       ARRAY(SELECT b.run FROM scoop.failed_below(r.root, r.id, $4, $5) b ORDER BY b.place) AS failed_below
FROM scoop.run r
WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'failed' AND (r.ready_at, r.id)
        < (coalesce($1::timestamptz, 'infinity'), coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY r.ready_at DESC, r.id DESC
LIMIT $3
