-- The states of entities, locked until the end of the transaction; but not those that another transaction has locked. An
-- entity without a row, and one that is locked, have no version here.
-- Locks: the rows that are free, in the order of the lists. Waits for none.
-- $1 names and $2 keys (pairs, in their order)
SELECT wanted.nth, e.version, e.state,
       e.version IS NULL AND (
           SELECT count(*) FROM scoop.entity k WHERE k.name = wanted.name AND k.key = wanted.key
       ) > 0 AS is_locked
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (name, key, nth)
LEFT JOIN LATERAL (
    SELECT e.version, e.state FROM scoop.entity e
    WHERE e.name = wanted.name AND e.key = wanted.key
    FOR UPDATE SKIP LOCKED
) e ON true
