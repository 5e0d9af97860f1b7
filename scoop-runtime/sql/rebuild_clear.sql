-- Empties the working set. Not by TRUNCATE, which would make the table small (see its migration).
-- Locks: all rows of run.
DELETE FROM scoop.run
