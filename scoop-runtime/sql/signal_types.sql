-- Returns the shapes of the types as which sagas read the signals of a name, and whether a living program has the saga with
-- that type. Null: a shape that is not recorded.
-- Locks: nothing.
-- $1 name
SELECT DISTINCT step ->> 'signal_shape', EXISTS (SELECT FROM scoop.worker w WHERE d.id = ANY (w.definitions))
FROM scoop.definition d
CROSS JOIN LATERAL jsonb_array_elements(d.steps) step
WHERE step ->> 'awaits' = $1
