SET LOCAL search_path = pg_catalog, pg_temp;

-- Functions about workers and runs that several statements use.

-- Whether the session of a worker is gone: its lock is free, or no backend of the worker's role is left that could hold
-- it. Every role of the database can read the key of a lock in `pg_locks`, queue for it, and get it when the worker
-- dies; but it cannot be that backend. The start of a backend is visible to members of its role only.
-- Locks: the advisory lock, until the end of the transaction, if it is free although that backend lives: the server has room for
-- a few thousand locks, and there may be more rows of dead workers.
CREATE FUNCTION scoop.is_gone(lock_key bigint, backend int, backend_since timestamptz, role oid) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN CASE WHEN EXISTS (
    SELECT FROM pg_stat_get_activity(backend) a
    WHERE a.usesysid = role AND coalesce(a.backend_start = backend_since, true)
) THEN pg_try_advisory_xact_lock(lock_key) ELSE true END;

-- The failed attempts of a run after one more by a program with this definition: how many were of the same step, of how many the result
-- is unknown, and under which definitions. `granted` is whether the step is granted this one. `again` is whether the former attempts
-- were of the same step. If it is null, they were if they were under the same definition. The definition is null if it is unknown.
CREATE FUNCTION scoop.tried(tries scoop.tries, unknown_attempts int, granted boolean, definition int, again boolean) RETURNS scoop.tries
LANGUAGE sql IMMUTABLE
RETURN (
    -- bounded, so that a forged count cannot overflow
    SELECT ROW(CASE WHEN same THEN least((tries).attempts, 2000000000) ELSE 0 END + (NOT granted)::int,
               CASE WHEN same THEN least((tries).retries, 2000000000) ELSE 0 END + granted::int,
               unknown_attempts,
               CASE WHEN definition IS NULL THEN former ELSE array_remove(former, definition) || definition END)::scoop.tries
    FROM (VALUES (
        (tries).attempts IS NOT NULL AND (tries).retries IS NOT NULL
            AND coalesce(again, definition IS NULL OR (tries).tried_under[cardinality((tries).tried_under)] = definition),
        CASE WHEN array_ndims((tries).tried_under) = 1 THEN (tries).tried_under END
    )) AS v (same, former)
);

-- Returns true if a run is in `run`, and fails otherwise. For a run that has begun and is not in `ended_run`: if `run` does not have it
-- either, its row was deleted, and its outcome is unknown.
CREATE FUNCTION scoop.is_in_run(of_root uuid, run uuid) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM scoop.run r WHERE r.root = of_root AND r.id = run) THEN
        RAISE EXCEPTION 'run % of hierarchy % has begun, and has no row in run or in ended_run', run, of_root
            USING ERRCODE = 'data_exception';
    END IF;
    RETURN true;
END
$$;

-- Whether a run has to give up at this time. Its claim says so, and a settlement of anything but a failure is void then.
-- The planner replaces the call by its text.
CREATE FUNCTION scoop.has_to_give_up(giving_up boolean, give_up_at timestamptz, at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (giving_up OR give_up_at <= at) IS TRUE;

-- Whether a cancellation makes an unfinished run give up: not if it gives up already, or is part of a rollback. The planner
-- replaces the call by its text.
CREATE FUNCTION scoop.can_give_up(giving_up boolean, rollback_since timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT giving_up AND rollback_since IS NULL;

-- The time from which a run is ready whose children have ended: at once, or when the time is over for which it waits,
-- too. Only such a time is later than the last event of a run that has begun. The planner replaces the call by its text.
CREATE FUNCTION scoop.wakes_at(ready_at timestamptz, last_event_at timestamptz, at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ready_at > last_event_at AND ready_at > at THEN ready_at ELSE at END;

-- The time by which a run is ordered in its queue, which has been ready since `ready_at`: each level of priority counts as
-- five minutes (`Priority::HEAD_START`). In a range that allows the calculation, as a row may have an infinite time. The
-- planner replaces the call by its text.
CREATE FUNCTION scoop.queue_time(ready_at timestamptz, priority int) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', ready_at)) - priority * interval '5 minutes';
