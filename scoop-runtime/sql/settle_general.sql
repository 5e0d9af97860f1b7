-- Persists settlements one after the other: `scoop.settle` applies each, and returns nothing for one that was void.
-- $1 the settlements, an array of objects, $2 the worker's identifier in events, $3 what
-- `scoop_run.claim` must be in this transaction: null outside the transaction of a step
SELECT s.id, s.epoch, s.state, s.last_event_at, s.overdue, s.ready_handlers
FROM pg_catalog.jsonb_array_elements($1) AS settlement (object)
CROSS JOIN LATERAL scoop.settle(object, $2, $3) AS s
