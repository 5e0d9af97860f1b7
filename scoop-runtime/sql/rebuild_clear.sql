-- Empties the working set, except for its ballast (see `0001_tables.sql`) and the rows of some hierarchies. Returns how
-- many rows are gone and how many are kept. Empties also the list of failed rollbacks, which follows from single events.
-- Locks: the deleted rows of run and of rollback_failure.
-- $1 the hierarchies that keep their rows
WITH cleared AS (
    DELETE FROM scoop.run
    WHERE root <> '00000000-0000-0000-0000-000000000000'
      -- the server compares with each element of an array, but looks up in the result of a query
      AND root NOT IN (SELECT kept FROM unnest($1::uuid[]) kept)
    RETURNING id
),
cleared_failures AS (
    DELETE FROM scoop.rollback_failure
)
SELECT (SELECT count(*) FROM cleared) AS cleared, (SELECT count(*) FROM scoop.run WHERE root = ANY ($1::uuid[])) AS kept
