-- Lists who listens where. Who is listed already stays as it is.
-- Locks: the new rows of handler.
-- $1 topics and $2 handlers (pairs)
INSERT INTO scoop.handler (topic, handler)
SELECT topic, handler FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
ORDER BY topic, handler
ON CONFLICT (topic, handler) WHERE until IS NULL DO NOTHING
