-- How many runs of these handlers are in execution under each of these keys? It follows limit_lock.sql in its transaction, and
-- reads all runs of the handlers that are in execution.
-- Locks: nothing.
-- $1 handlers, $2 keys
SELECT r.limit_key::text AS key, count(*) AS running
FROM scoop.run r
WHERE r.state = 'running' AND r.handler = ANY ($1::text[]) AND r.id >= '00000000-0000-0000-0000-000000000000'
  AND r.limit_key = ANY ($2::text[])
GROUP BY r.limit_key
