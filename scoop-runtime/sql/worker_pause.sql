-- Waits for claims of mine that are still under way in the server, perhaps on a connection that I
-- have lost, and holds off new ones until the end of the transaction. What I own can be told only
-- afterwards, by another statement.
-- If I am not listed, it finds nothing: then I own nothing, since whoever struck me out has freed that.
-- Locks: my row of worker.
-- $1 worker
SELECT id, handlers, definitions FROM scoop.worker WHERE id = $1 FOR UPDATE
