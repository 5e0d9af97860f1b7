-- Which runs are set aside since no program at hand can continue them, longest first? Not those that
-- could not be undone.
-- Locks: nothing.
-- $1 longer than since this (nothing: the first), $2 and if as long, with a greater id, $3 how many
SELECT r.lineage, r.message_id, r.handler, r.topic, r.step, r.backward, r.reason, r.gives_up,
       r.ready_at AS stuck_since
FROM scoop.run r
WHERE r.state = 'stuck' AND NOT r.held
  AND ($1::timestamptz IS NULL OR (r.ready_at, r.id) > ($1, $2))
ORDER BY r.ready_at, r.id
LIMIT $3
