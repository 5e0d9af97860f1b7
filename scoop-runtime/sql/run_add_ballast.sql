-- Adds the ballast of the working set if it is gone: see `0001_tables.sql`.
-- Locks: the new rows of run.
SELECT scoop.add_ballast()
