SET LOCAL search_path = pg_catalog, pg_temp;

-- Deletion of finished hierarchies, signals and unique keys.
--
-- keep_of, kept_since, root_topic: times and settings of a type of messages
-- prune: a finished hierarchy
-- retention_next, retention_settle, retention_put_off, keep_unhandled: the next hierarchies to delete
-- prune_signals: signals that reach no run any more; prune_keys: kept unique keys

-- For how many seconds finished hierarchies of this topic are kept, and after them the unique keys of their launches, and whether
-- only programs with an archive delete them: as the longest of its handlers says; if all of these are retired, as they said.
CREATE FUNCTION scoop.keep_of(
    of_topic text, OUT committed float8, OUT rolled_back float8, OUT keys float8, OUT is_archived boolean)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT max(t.committed), max(t.rolled_back), max(t.keys), bool_or(t.is_archived)
    FROM (
        SELECT k.*, h.handler IS NOT NULL AS is_active, bool_or(h.handler IS NOT NULL) OVER () AS is_any_active
        FROM scoop.keep_time k
        LEFT JOIN scoop.handler h ON h.topic = k.topic AND h.handler = k.handler AND h.retired_at IS NULL
        WHERE k.topic = of_topic
    ) t
    WHERE t.is_active OR NOT t.is_any_active;
END;

-- Before which time something is older than this many seconds: an hour at least, and at most a thousand years.
CREATE FUNCTION scoop.kept_since(seconds float8) RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN clock_timestamp() - least(greatest(seconds, 3600), 3.2e10) * interval '1 second';

-- The topic of the message that started a hierarchy.
CREATE FUNCTION scoop.root_topic(hierarchy uuid) RETURNS text LANGUAGE sql STABLE
RETURN (
    SELECT m.topic
    FROM scoop.message_event e
    JOIN scoop.message m ON m.id = e.message_id
    WHERE scoop.run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED'
    LIMIT 1
);

-- Deletes a hierarchy of which no run is unfinished, and the last one ended before the given time, which counts as an hour at
-- least; so does a cancellation or a relaunch of it. Those whose first message was handled without a rollback have a time of their own; by topic, these are the times for
-- topics of which no handler says another one. The verdict is `deleted`, or why the hierarchy is kept, with the time at which to
-- look at it again: after an eighth of its age at the latest, so that it is looked at the more rarely the longer it is kept. The
-- counts are of the deleted rows.
--
-- Also kept is one that a join may still read or have rolled back, and a `Failed` that would be sent again without its message.
-- The messages of events of entities stay.
--
-- SECURITY DEFINER: a role needs only EXECUTE, and cannot delete anything else.
-- Locks: the advisory lock of the hierarchy, as hierarchy_lock.sql, and the rows of its messages, as redeliver_lock.sql;
-- does not wait for them: the verdict is `busy` then. A launch with the id of one of these messages waits.
CREATE FUNCTION scoop.prune(
    hierarchy uuid, keep_committed float8, keep_rolled_back float8, is_by_topic boolean, is_dry_run boolean,
    OUT verdict text, OUT message_count bigint, OUT event_count bigint, OUT look_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    prefix CONSTANT text := 'scoop' || '.failed';  -- in two parts: programs put the name of the schema before each dot
    root_messages uuid[];
    root_topic text;
    launched_at timestamptz;
    last_at timestamptz;
    age interval;
    is_rolled_back boolean;
    seconds float8;  -- for which it is kept
    keep record;
    parts uuid[];  -- the hierarchy and its runs: the last ids of all lineages
    messages uuid[];
    about text;
    kept_keys uuid[];  -- the messages that are kept for their unique keys
    keys_until timestamptz;
BEGIN
    message_count := 0;
    event_count := 0;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- what is checked under the locks would be older than these
        RAISE EXCEPTION 'hierarchies can be pruned in a transaction at READ COMMITTED only'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- in a range that allows the calculation, as a row may have an infinite time
    SELECT array_agg(e.message_id), greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', min(e.created_at)))
    INTO root_messages, launched_at
    FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED';
    IF root_messages IS NULL AND NOT EXISTS (SELECT FROM scoop.ended_run r WHERE r.root = hierarchy) THEN
        verdict := 'absent';
        RETURN;
    END IF;
    age := clock_timestamp() - coalesce(launched_at, clock_timestamp());
    look_at := clock_timestamp() + greatest(interval '1 hour', age / 8);
    SELECT CASE WHEN bool_and(r.state = 'failed') THEN 'failed' ELSE 'unfinished' END INTO verdict
    FROM scoop.run r WHERE r.root = hierarchy HAVING count(*) > 0;
    IF verdict IS NOT NULL THEN
        RETURN;
    END IF;
    IF NOT is_dry_run THEN
        -- From here on nothing can add a run: neither a request to roll back nor a redelivery.
        IF NOT pg_try_advisory_xact_lock(hashtextextended(hierarchy::text, 0))
            OR (SELECT count(*) FROM (
                    SELECT m.id FROM scoop.message m WHERE m.id = ANY (root_messages) FOR UPDATE SKIP LOCKED) locked
               ) < cardinality(root_messages)
        THEN
            verdict := 'busy';
            look_at := clock_timestamp() + interval '1 minute';
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM scoop.run r WHERE r.root = hierarchy) THEN
            verdict := 'unfinished';
            RETURN;
        END IF;
    END IF;

    SELECT hierarchy || array_agg(r.id), max(r.ended_at),
           bool_or(r.outcome <> 'committed') FILTER (WHERE cardinality(r.lineage) = 2)
    INTO parts, last_at, is_rolled_back
    FROM scoop.ended_run r WHERE r.root = hierarchy;
    SELECT m.topic INTO root_topic FROM scoop.message m WHERE m.id = root_messages[1];
    -- A cancellation or a relaunch is a sign of life, too.
    last_at := greatest(
        coalesce(last_at, launched_at),
        (SELECT max(r.requested_at) FROM scoop.relaunch r WHERE r.of_root = hierarchy),
        (SELECT max(e.created_at) FROM scoop.message_event e
         WHERE e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = hierarchy));
    -- without a run it is as one that was rolled back
    is_rolled_back := coalesce(is_rolled_back, true);
    SELECT * INTO keep FROM scoop.keep_of(root_topic);
    seconds := CASE WHEN is_rolled_back THEN keep_rolled_back ELSE keep_committed END;
    IF is_by_topic THEN
        seconds := coalesce(CASE WHEN is_rolled_back THEN keep.rolled_back ELSE keep.committed END, seconds);
    END IF;
    IF last_at >= scoop.kept_since(seconds) THEN
        verdict := 'recent';
        -- a shorter time may count from the next start of a program on
        look_at := least(last_at + (clock_timestamp() - scoop.kept_since(seconds)),
                         clock_timestamp() + greatest(interval '1 day', age / 8));
        RETURN;
    END IF;

    SELECT m.payload ->> 'hierarchy' INTO about
    FROM scoop.message m
    WHERE m.id = ANY (root_messages) AND starts_with(m.topic, prefix)
      AND m.payload ->> 'hierarchy' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    LIMIT 1;
    IF EXISTS (
            SELECT FROM unnest(parts) p (id)
            CROSS JOIN LATERAL (
                SELECT FROM scoop.join_member j WHERE j.run = p.id AND j.joined IS NULL AND j.refused IS NULL OFFSET 0
            ) waiting)
        OR EXISTS (SELECT FROM scoop.join_member j WHERE j.joined = hierarchy)
        OR about IS NOT NULL AND EXISTS (SELECT FROM scoop.run r WHERE r.root = about::uuid)
    THEN
        verdict := 'needed';
        RETURN;
    END IF;

    SELECT array_agg(DISTINCT own.message_id), count(own.is_event) INTO messages, event_count
    FROM (
        SELECT CASE WHEN e.type = 'EMITTED' THEN e.message_id END AS message_id, true AS is_event
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.type, e.message_id FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = p.id
            OFFSET 0
        ) e
      UNION ALL
        SELECT x.message_id, NULL
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (SELECT x.message_id FROM scoop.execution x WHERE x.run = p.id OFFSET 0) x
    ) own;
    messages := array_remove(messages, NULL);
    -- a cancellation may hold the row of any message
    IF NOT is_dry_run AND (
            SELECT count(*) FROM (
                SELECT m.id FROM scoop.message m WHERE m.id = ANY (messages) FOR UPDATE SKIP LOCKED) locked
        ) < cardinality(messages)
    THEN
        verdict := 'busy';
        event_count := 0;
        look_at := clock_timestamp() + interval '1 minute';
        RETURN;
    END IF;
    verdict := 'deleted';
    -- The ids of messages with unique keys follow from these: they are of version 5.
    keys_until := last_at + least(coalesce(keep.keys, 0), 3.2e10) * interval '1 second';
    SELECT array_agg(m.id) INTO kept_keys
    FROM unnest(root_messages) m (id)
    WHERE substr(m.id::text, 15, 1) = '5' AND keys_until > clock_timestamp();
    IF is_dry_run THEN
        SELECT count(*) INTO message_count
        FROM scoop.message m
        WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
          AND (SELECT count(*) FROM scoop.entity_event v WHERE v.message_id = m.id) = 0;
        RETURN;
    END IF;
    -- the rows that archive_rows.sql reads
    DELETE FROM scoop.message_event e WHERE scoop.run_id(e.cooperation_lineage) = ANY (parts);
    DELETE FROM scoop.return_value v WHERE scoop.run_id(v.cooperation_lineage) = ANY (parts);
    DELETE FROM scoop.ended_run r WHERE r.root = hierarchy;
    DELETE FROM scoop.execution x WHERE x.run = ANY (parts);
    DELETE FROM scoop.begun_step b WHERE b.run = ANY (parts);
    DELETE FROM scoop.intervention i WHERE i.root = hierarchy;
    DELETE FROM scoop.join_member j WHERE j.run = ANY (parts);
    DELETE FROM scoop.relaunch r WHERE r.of_root = hierarchy;
    DELETE FROM scoop.redelivery d WHERE d.message_id = ANY (messages);
    DELETE FROM scoop.kept_hierarchy k WHERE k.root = hierarchy;
    DELETE FROM scoop.found_by f WHERE f.found = ANY (hierarchy || messages);
    INSERT INTO scoop.kept_key (message_id, until)
    SELECT k.id, keys_until FROM unnest(kept_keys) k (id)
    ON CONFLICT ON CONSTRAINT kept_key_pkey DO UPDATE SET until = excluded.until;
    UPDATE scoop.message m SET payload = 'null' WHERE m.id = ANY (kept_keys);
    DELETE FROM scoop.message m
    WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
      AND (SELECT count(*) FROM scoop.entity_event v WHERE v.message_id = m.id) = 0;
    GET DIAGNOSTICS message_count = ROW_COUNT;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune (uuid, float8, float8, boolean, boolean) FROM PUBLIC;

-- The next hierarchies that may be due, for this worker, the longest due ones first: those that were put off until now, and by topic
-- and outcome those of a run of the first message that ended before the time to keep. Those that could not be deleted come after
-- all others. Returns no list if another worker deletes. `is_more`: there may be more; `behind`: for how many seconds the oldest of all that
-- are due has been so. A worker without an archive leaves topics alone that need one.
-- Locks: the row of retention; does not wait for it.
CREATE FUNCTION scoop.retention_next(
    worker uuid, keep_committed float8, keep_rolled_back float8, max_count bigint, has_archive boolean,
    OUT roots uuid[], OUT is_more boolean, OUT behind float8)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    is_more := false;
    behind := 0;
    -- The row is gone if the table was emptied. Otherwise the insert would wait for a settlement.
    IF NOT EXISTS (SELECT FROM scoop.retention) THEN
        INSERT INTO scoop.retention DEFAULT VALUES ON CONFLICT ON CONSTRAINT retention_pkey DO NOTHING;
    END IF;
    -- A settlement holds the lock, however long it takes.
    PERFORM FROM scoop.retention r WHERE r.is_only FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A worker that died keeps others waiting for so long. No worker takes the turn for ten minutes: the clock was set back then.
    UPDATE scoop.retention r SET taken_by = worker, taken_until = clock_timestamp() + interval '5 minutes'
    WHERE r.is_only
      AND (r.taken_by = worker
           OR (r.taken_until >= clock_timestamp() AND r.taken_until < clock_timestamp() + interval '10 minutes') IS NOT TRUE);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH RECURSIVE lane (topic, outcome) AS (
        (SELECT r.topic, r.outcome FROM scoop.ended_run r
         WHERE cardinality(r.lineage) = 2 AND NOT r.put_off
         ORDER BY r.topic, r.outcome LIMIT 1)
      UNION ALL
        SELECT following.topic, following.outcome
        FROM lane
        CROSS JOIN LATERAL (
            SELECT r.topic, r.outcome FROM scoop.ended_run r
            WHERE (r.topic, r.outcome) > (lane.topic, lane.outcome) AND cardinality(r.lineage) = 2 AND NOT r.put_off
            ORDER BY r.topic, r.outcome LIMIT 1
        ) following
    ),
    due (root, lag, is_undeletable) AS (
        SELECT k.root, clock_timestamp() - k.until, kind.is_undeletable
        FROM (VALUES (false), (true)) AS kind (is_undeletable)
        CROSS JOIN LATERAL (
            SELECT k.root, k.until FROM scoop.kept_hierarchy k
            WHERE (k.failures > 0) = kind.is_undeletable AND k.until < clock_timestamp()
            ORDER BY k.until LIMIT max_count
        ) k
      UNION ALL
        SELECT r.root, times.before - greatest(r.ended_at, '0001-01-01 00:00+00'), false
        FROM lane
        CROSS JOIN LATERAL scoop.keep_of(lane.topic) keep
        CROSS JOIN LATERAL (
            SELECT scoop.kept_since(CASE WHEN lane.outcome = 'committed' THEN coalesce(keep.committed, keep_committed)
                                         ELSE coalesce(keep.rolled_back, keep_rolled_back) END) AS before
            OFFSET 0
        ) times
        CROSS JOIN LATERAL (
            SELECT r.root, r.ended_at FROM scoop.ended_run r
            WHERE r.topic = lane.topic AND r.outcome = lane.outcome AND r.ended_at < times.before
              AND cardinality(r.lineage) = 2 AND NOT r.put_off
            ORDER BY r.ended_at LIMIT max_count
        ) r
        WHERE has_archive OR keep.is_archived IS NOT TRUE
    )
    SELECT coalesce(array_agg(d.root), '{}'), coalesce(max(extract(epoch FROM d.lag)) FILTER (WHERE NOT d.is_undeletable), 0)
    INTO roots, behind
    FROM (
        SELECT due.root, max(due.lag) AS lag, bool_and(due.is_undeletable) AS is_undeletable
        FROM due GROUP BY due.root
        ORDER BY bool_and(due.is_undeletable), max(due.lag) DESC
        LIMIT max_count
    ) d;
    is_more := cardinality(roots) >= max_count;
    IF cardinality(roots) = 0 THEN
        UPDATE scoop.retention r SET taken_until = NULL WHERE r.is_only;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_next (uuid, float8, float8, bigint, boolean) FROM PUBLIC;

-- Deletes those of these hierarchies that are due, and puts the others off. Deletes only hierarchies that are also in `archived`;
-- one that is due and not in it is looked at again after `retry_after` seconds. Without such a list, of a worker without an
-- archive, only those are deleted whose topic needs none. The verdict of the others is `unarchived`.
-- Does nothing, and returns no verdict, if another worker has taken the turn meanwhile.
-- Locks: the row of retention, so that no other worker takes the turn before the commit; then those of scoop.prune, of
-- each hierarchy.
CREATE FUNCTION scoop.retention_settle(
    worker uuid, keep_committed float8, keep_rolled_back float8, roots uuid[], archived uuid[], is_last boolean,
    retry_after float8)
RETURNS TABLE (verdict text, message_count bigint, event_count bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked record;
    pruned record;
BEGIN
    PERFORM FROM scoop.retention r WHERE r.is_only AND r.taken_by = worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR asked IN
        SELECT u.root,
               CASE WHEN archived IS NOT NULL THEN u.root = ANY (archived)
                    ELSE (SELECT k.is_archived IS NOT TRUE FROM scoop.keep_of(scoop.root_topic(u.root)) k) END AS is_archived
        FROM unnest(roots) u (root) GROUP BY u.root ORDER BY u.root
    LOOP
        SELECT * INTO pruned FROM scoop.prune(asked.root, keep_committed, keep_rolled_back, true, NOT asked.is_archived);
        IF pruned.verdict = 'deleted' AND NOT asked.is_archived THEN
            pruned.verdict := 'unarchived';
            pruned.message_count := 0;
            pruned.event_count := 0;
            IF archived IS NOT NULL THEN
                pruned.look_at := clock_timestamp() + retry_after * interval '1 second';
            END IF;
        END IF;
        IF pruned.verdict = 'absent' THEN
            DELETE FROM scoop.kept_hierarchy k WHERE k.root = asked.root;
        ELSIF pruned.verdict = 'unarchived' AND archived IS NULL AND scoop.left_to_archive(asked.root) THEN
            NULL;
        ELSIF pruned.verdict <> 'deleted' THEN
            PERFORM scoop.put_off(asked.root, pruned.look_at, NULL, pruned.verdict = 'unarchived');
        END IF;
        verdict := pruned.verdict;
        message_count := pruned.message_count;
        event_count := pruned.event_count;
        RETURN NEXT;
    END LOOP;
    UPDATE scoop.retention r SET taken_until = CASE WHEN NOT is_last THEN clock_timestamp() + interval '5 minutes' END
    WHERE r.is_only;
END $$;
REVOKE EXECUTE ON FUNCTION
    scoop.retention_settle (uuid, float8, float8, uuid[], uuid[], boolean, float8) FROM PUBLIC;

-- Has the deletion look at a hierarchy at a time of its own. A reason counts as one more failure of its deletion or archive; without
-- one there is none, unless the former ones still count.
-- Locks: its row of kept_hierarchy, and the rows of the runs of its first message.
CREATE FUNCTION scoop.put_off(hierarchy uuid, until_at timestamptz, why text, failures_count boolean) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO scoop.kept_hierarchy AS kept (root, until, failures, error)
    VALUES (hierarchy, until_at, CASE WHEN why IS NULL THEN 0 ELSE 1 END, left(why, 1000))
    ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET
        until = excluded.until,
        error = CASE WHEN why IS NULL AND failures_count THEN kept.error ELSE excluded.error END,
        failures = CASE WHEN failures_count THEN greatest(0, least(kept.failures, 1000)) ELSE 0 END + excluded.failures;
    UPDATE scoop.ended_run r SET put_off = true
    WHERE r.root = hierarchy AND cardinality(r.lineage) = 2 AND NOT r.put_off;
END;

-- Lets the deletion find a hierarchy by the ends of its runs again, if it has any: only workers with an archive look there.
-- Locks: those of scoop.put_off.
CREATE FUNCTION scoop.left_to_archive(hierarchy uuid) RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
    DELETE FROM scoop.kept_hierarchy k
    WHERE k.root = hierarchy
      AND EXISTS (SELECT FROM scoop.ended_run r WHERE r.root = hierarchy AND cardinality(r.lineage) = 2);
    UPDATE scoop.ended_run r SET put_off = false
    WHERE r.root = hierarchy AND cardinality(r.lineage) = 2 AND r.put_off;
    SELECT EXISTS (SELECT FROM scoop.ended_run r WHERE r.root = hierarchy AND cardinality(r.lineage) = 2);
END;

-- Puts a hierarchy off whose deletion or archive failed, by `retry_after` seconds, and after a further failure by twice as many, up
-- to 32 times. Returns the topic of its first message.
-- Locks: those of scoop.put_off.
CREATE FUNCTION scoop.retention_put_off(hierarchy uuid, why text, retry_after float8) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM scoop.put_off(
        hierarchy,
        clock_timestamp() + retry_after * interval '1 second' * power(2, greatest(0, least(5, (
            SELECT coalesce(max(k.failures), 0) FROM scoop.kept_hierarchy k WHERE k.root = hierarchy)))),
        why, true);
    RETURN scoop.root_topic(hierarchy);
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_put_off (uuid, text, float8) FROM PUBLIC;

-- Has the deletion look at a hierarchy whose message has no handler: no end of a run will tell. Returns no rows.
-- Locks: nothing.
CREATE FUNCTION scoop.keep_unhandled(hierarchy uuid) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO scoop.kept_hierarchy (root, until) VALUES (hierarchy, clock_timestamp() + interval '1 hour')
    ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO NOTHING;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.keep_unhandled (uuid) FROM PUBLIC;

-- Deletes signals that reach no run any more since `older_than`, which counts as an hour at least: delivered ones, and
-- those that no run awaited in time. Returns how many.
-- Locks: the deleted rows; skips locked ones.
CREATE FUNCTION scoop.prune_signals(older_than interval, limit_to bigint, is_dry_run boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before CONSTANT timestamptz := clock_timestamp() - greatest(older_than, interval '1 hour');
    pruned bigint;
BEGIN
    IF is_dry_run THEN
        SELECT count(*) INTO pruned
        FROM scoop.signal s WHERE coalesce(s.delivered_at, s.kept_until) < before;
    ELSE
        DELETE FROM scoop.signal s
        WHERE s.id = ANY (ARRAY(
            SELECT o.id FROM scoop.signal o
            WHERE coalesce(o.delivered_at, o.kept_until) < before
            ORDER BY coalesce(o.delivered_at, o.kept_until)
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS pruned = ROW_COUNT;
    END IF;
    RETURN pruned;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune_signals (interval, bigint, boolean) FROM PUBLIC;

-- Deletes unique keys that are kept and whose time is over, with their messages. Returns how many.
-- Locks: the deleted rows; skips locked ones.
CREATE FUNCTION scoop.prune_keys(limit_to bigint, is_dry_run boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    over uuid[];
BEGIN
    IF is_dry_run THEN
        RETURN (SELECT count(*) FROM scoop.kept_key k WHERE k.until < clock_timestamp());
    END IF;
    WITH deleted AS (
        DELETE FROM scoop.kept_key k
        WHERE k.message_id = ANY (ARRAY(
            SELECT o.message_id FROM scoop.kept_key o
            WHERE o.until < clock_timestamp()
            ORDER BY o.until
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED))
        RETURNING k.message_id
    )
    SELECT array_agg(d.message_id) INTO over FROM deleted d;
    DELETE FROM scoop.message m WHERE m.id = ANY (over);
    RETURN coalesce(cardinality(over), 0);
END $$;
REVOKE EXECUTE ON FUNCTION scoop.prune_keys (bigint, boolean) FROM PUBLIC;
