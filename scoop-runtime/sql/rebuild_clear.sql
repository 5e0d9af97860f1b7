-- Empties the working set, but for its ballast (see `0005_lean.sql`).
-- Locks: all other rows of run.
DELETE FROM scoop.run WHERE root <> '00000000-0000-0000-0000-000000000000'
