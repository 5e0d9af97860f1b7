SET LOCAL search_path = pg_catalog, pg_temp;

-- Pauses, and the first of the files with views and functions. Each subject has a file:
--
-- 0002_pauses        paused: what each pause covers; pauses_of: those of a run; trim_ended_pauses: deletion of old ended ones
-- 0003_views         runs: unfinished runs, for people; unfinished_run: as programs list and explain them, with the phase of each;
--                    queues, reached limits; failed_below: failed runs that come before a failed one
-- 0004_runs          is_gone: whether the session of a worker has ended; is_in_run, tried, has_to_give_up, can_give_up,
--                    wakes_at, queue_time: parts of statements
-- 0005_settle        settle: what follows from a move of a run; failed_children: failures for a parent
-- 0006_failures      is_readable, bytes_of, shown_bytes, shown_failure: failures as programs read them; send_failed: messages
--                    about failures
-- 0007_launches      launch, relaunch: messages with the runs of their handlers; send_signal: signals
-- 0008_queue_limits  lease_places: places in queues with a limit; waiting_runs: the length of a queue
-- 0009_retention     prune: deletion of a finished hierarchy; retention_next: which ones are next; prune_signals, prune_keys
-- 0010_version       schema_version
--
-- From the first release on a later version of a function takes another name, since programs of both versions may run.

-- What each pause covers: everything, a topic, or a handler under all names that its saga has had.
CREATE VIEW scoop.paused WITH (security_invoker = true) AS
SELECT p.kind, p.name, p.name::text AS covers, p.reason, p.source, p.since, p.until
FROM scoop.pause p
UNION
SELECT p.kind, p.name, covered.name, p.reason, p.source, p.since, p.until
FROM scoop.pause p
JOIN scoop.handler h ON p.kind = 'handler' AND h.was IS NOT NULL
    AND p.name::text = ANY (h.handler::text || h.was)
CROSS JOIN LATERAL unnest(h.handler::text || h.was) AS covered (name);

-- The pauses that cover the runs of a handler on a topic, longest first; null if there are none. A forged row may have longer
-- texts than programs write.
CREATE FUNCTION scoop.pauses_of(of_handler text, of_topic text) RETURNS jsonb LANGUAGE sql STABLE
RETURN (
    SELECT jsonb_agg(
        jsonb_build_object(
            'kind', p.kind, 'name', p.name, 'reason', left(p.reason, 1000), 'source', left(p.source, 1000),
            'since', (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.since))) * 1000000)::bigint,
            'until', CASE WHEN p.until IS NOT NULL THEN
                (extract(epoch FROM greatest('0001-01-01Z', least('9999-12-31Z', p.until))) * 1000000)::bigint END)
        ORDER BY p.since, p.kind, p.name)
    FROM scoop.paused p
    WHERE CASE p.kind WHEN 'everything' THEN true WHEN 'topic' THEN p.covers = of_topic ELSE p.covers = of_handler END
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
