SET LOCAL search_path = pg_catalog, pg_temp;

-- Pauses, and the first of the files with views and functions. Each subject has a file:
--
-- 0002_pauses        paused: what each pause covers; is_paused_for_new, is_new: pauses for new runs only; pauses_of: the pauses of a
--                    run; trim_ended_pauses: deletion of old ended ones
-- 0003_views         runs: unfinished runs, for people; unfinished_run: as programs list and explain them, with the phase of each;
--                    queues, reached limits; failed_below: failed runs that come before a failed one
-- 0004_runs          is_gone: whether the session of a worker has ended; is_in_run, tried, has_to_give_up, can_give_up,
--                    wakes_at, queue_time: parts of statements
-- 0005_settle        settle: what follows from a move of a run; failed_children: failures for a parent
-- 0006_failures      is_readable, bytes_of, shown_bytes, shown_failure: failures as programs read them; send_failed: messages
--                    about failures
-- 0007_launches      launch, relaunch: messages with the runs of their handlers; send_signal: signals
-- 0008_queue_limits  waiting_runs: the length of a queue
-- 0009_retention     prune: deletion of a finished hierarchy; retention_next: which ones are next; prune_signals, prune_keys
-- 0010_version       schema_version
--
-- From the first release on a later version of a function takes another name, since programs of both versions may run.

-- What each pause covers: everything, a topic, or a handler under all names that its saga has had.
CREATE VIEW scoop.paused WITH (security_invoker = true) AS
SELECT p.kind, p.name, p.name::text AS covers, p.reason, p.source, p.since, p.until, p.new_runs_only
FROM scoop.pause p
UNION
SELECT p.kind, p.name, covered.name, p.reason, p.source, p.since, p.until, p.new_runs_only
FROM scoop.pause p
JOIN scoop.handler h ON p.kind = 'handler' AND h.was IS NOT NULL
    AND p.name::text = ANY (h.handler::text || h.was)
CROSS JOIN LATERAL unnest(h.handler::text || h.was) AS covered (name);

-- Whether a pause for new runs only covers the runs of a handler on a topic.
CREATE FUNCTION scoop.is_paused_for_new(of_handler text, of_topic text) RETURNS boolean LANGUAGE sql STABLE COST 1
RETURN EXISTS (
    SELECT FROM scoop.paused p
    WHERE p.new_runs_only
      AND CASE p.kind WHEN 'everything' THEN true WHEN 'topic' THEN p.covers = of_topic ELSE p.covers = of_handler END
);

-- Whether a run above this one is unfinished and covered by a pause for new runs only. It has begun, and has to finish.
CREATE FUNCTION scoop.is_below_paused(of_root uuid, of_lineage uuid[]) RETURNS boolean LANGUAGE sql STABLE COST 1
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM unnest(of_lineage[:cardinality(of_lineage) - 1]) AS above (id)
        CROSS JOIN LATERAL (
            SELECT r.handler, r.topic FROM scoop.run r
            WHERE r.root = of_root AND r.id = above.id AND r.state::text <> 'ended' OFFSET 0
        ) r
        WHERE scoop.is_paused_for_new(r.handler, r.topic)
    )
$$;

-- Whether a run waits under a pause for new runs only: it has never begun, need not roll back or give up, and no run above it that
-- such a pause covers has to finish. The planner replaces the call by its text.
CREATE FUNCTION scoop.is_new(began_at timestamptz, rollback_requested boolean, giving_up boolean, root uuid, lineage uuid[])
RETURNS boolean LANGUAGE sql STABLE
RETURN began_at IS NULL AND NOT rollback_requested AND NOT giving_up
    AND (cardinality(lineage) <= 2 OR NOT scoop.is_below_paused(root, lineage));

-- The pauses that cover the runs of a handler on a topic, longest first; null if there are none. Those for new runs only are among
-- them for a new run. A forged row may have longer texts than programs write.
CREATE FUNCTION scoop.pauses_of(of_handler text, of_topic text, of_new boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN (
    SELECT jsonb_agg(
        jsonb_build_object(
            'kind', p.kind, 'name', p.name, 'reason', left(p.reason, 1000), 'source', left(p.source, 1000),
            'since', (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.since))) * 1000000)::bigint,
            'until', CASE WHEN p.until IS NOT NULL THEN
                (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.until))) * 1000000)::bigint END,
            'new_runs_only', p.new_runs_only)
        ORDER BY p.since, p.kind, p.name)
    FROM scoop.paused p
    WHERE (of_new OR NOT p.new_runs_only)
      AND CASE p.kind WHEN 'everything' THEN true WHEN 'topic' THEN p.covers = of_topic ELSE p.covers = of_handler END
);

-- Deletes all ended pauses but the newest 1,000. SECURITY DEFINER: a role needs no right to delete others.
-- Locks: the deleted rows.
CREATE FUNCTION scoop.trim_ended_pauses() RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM scoop.ended_pause p
    WHERE p.ended_at < (SELECT newer.ended_at FROM scoop.ended_pause newer ORDER BY newer.ended_at DESC OFFSET 999 LIMIT 1)
$$;
REVOKE EXECUTE ON FUNCTION scoop.trim_ended_pauses () FROM PUBLIC;
