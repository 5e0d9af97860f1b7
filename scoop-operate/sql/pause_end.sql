-- Ends the pause of something, and records that. It follows topology_change.sql in its transaction.
-- Locks: its row of pause.
-- $1 kind and $2 name, $3 the requester, $4 the reason
WITH ended AS (
    DELETE FROM scoop.pause WHERE kind = $1 AND name = $2
    RETURNING kind, name, reason, source, since, until, new_runs_only
),
recorded AS (
    INSERT INTO scoop.ended_pause (kind, name, reason, source, since, until, new_runs_only, ended_by, ended_reason)
    SELECT kind, name, reason, source, since, until, new_runs_only, $3, $4 FROM ended
)
SELECT kind, name::text, left(reason, 1000) AS reason, left(source, 1000) AS source, since, until, new_runs_only FROM ended
