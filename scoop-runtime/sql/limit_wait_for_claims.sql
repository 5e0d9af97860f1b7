-- Waits for the claims of all workers that are in progress in the server: they may be by limits that change now. It follows
-- topology_change.sql in its transaction: later claims by the former topology take nothing.
-- Locks: all rows of worker, one after the other by their ids, against claims.
SELECT w.id FROM scoop.worker w ORDER BY w.id FOR UPDATE
