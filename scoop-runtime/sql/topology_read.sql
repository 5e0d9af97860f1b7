-- Which workers live, since when, and which definitions do they have?
-- Locks: nothing.
SELECT w.id, w.topology, w.started_at, w.topics, w.handlers, w.definitions FROM scoop.worker w
