-- Returns the names of the signals that sagas of living programs await.
-- Locks: nothing.
SELECT DISTINCT step ->> 'awaits'
FROM scoop.worker w
JOIN scoop.definition d ON d.id = ANY (w.definitions)
CROSS JOIN LATERAL jsonb_array_elements(d.steps) step
WHERE step ? 'awaits'
