-- The states of entities, locked until the end of the transaction. An entity without a row has none here.
-- Locks: the rows, in the order of the lists.
-- $1 names and $2 keys (pairs, in their order)
SELECT wanted.nth, e.version, e.state
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (name, key, nth)
CROSS JOIN LATERAL (
    SELECT e.version, e.state FROM scoop.entity e
    WHERE e.name = wanted.name AND e.key = wanted.key
    FOR UPDATE
) e
