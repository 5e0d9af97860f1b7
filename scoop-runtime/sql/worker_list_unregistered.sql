-- Which owners of running runs are not registered, although no process has freed these runs? The nil id stands for
-- none.
-- Locks: nothing.
SELECT DISTINCT coalesce(r.owner, '00000000-0000-0000-0000-000000000000') AS owner
FROM scoop.run r
WHERE r.state = 'running' AND NOT EXISTS (SELECT FROM scoop.worker w WHERE w.id = r.owner)
