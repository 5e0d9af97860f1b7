-- Ends the pauses whose time is over, and records that. It follows topology_change.sql in its transaction, so one at a time ends
-- them.
-- Locks: these rows of pause.
WITH ended AS (
    DELETE FROM scoop.pause WHERE until <= clock_timestamp()
    RETURNING kind, name, reason, source, since, until, new_runs_only
),
recorded AS (
    INSERT INTO scoop.ended_pause (kind, name, reason, source, since, until, new_runs_only)
    SELECT kind, name, reason, source, since, until, new_runs_only FROM ended
)
SELECT kind, name::text, left(reason, 1000) AS reason, left(source, 1000) AS source, since, until, new_runs_only FROM ended
