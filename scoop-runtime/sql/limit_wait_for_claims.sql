-- Waits for the claims of all workers that are in progress in the server: they may be by limits that change now. It follows
-- topology_change.sql in its transaction: later claims by the former topology take nothing.
-- Locks: all rows of worker, against claims.
SELECT w.id FROM scoop.worker w FOR UPDATE
