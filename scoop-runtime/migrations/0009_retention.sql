SET LOCAL search_path = pg_catalog, pg_temp;

-- Deletion of finished hierarchies, signals and unique keys.
--
-- keep_of, keep_keys_of, needs_archive, kept_since, root_topic: times and settings of a type of messages
-- prune: a hierarchy at rest
-- retention_next, retention_settle, retention_put_off: the next hierarchies to delete
-- prune_signals: signals that reach no run any more; prune_keys: kept unique keys

-- For how many seconds finished hierarchies of this topic are kept: as the longest of its handlers says; if all of these are
-- retired, as they said.
CREATE FUNCTION scoop.keep_of(of_topic text, is_rolled_back boolean, by_default float8) RETURNS float8 LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(max(k.seconds) FILTER (WHERE h.handler IS NOT NULL), max(k.seconds), by_default)
    FROM (
        SELECT t.topic, t.handler, CASE WHEN is_rolled_back THEN t.rolled_back ELSE t.committed END AS seconds
        FROM scoop.keep_time t WHERE t.topic = of_topic
    ) k
    LEFT JOIN scoop.handler h ON h.topic = k.topic AND h.handler = k.handler AND h.retired_at IS NULL
);

-- For how many seconds after the last event of a hierarchy the unique key of its launch counts: the longest of the times of its
-- handlers, as in scoop.keep_of.
CREATE FUNCTION scoop.keep_keys_of(of_topic text) RETURNS float8 LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(max(t.keys) FILTER (WHERE h.handler IS NOT NULL), max(t.keys), 0)
    FROM scoop.keep_time t
    LEFT JOIN scoop.handler h ON h.topic = t.topic AND h.handler = t.handler AND h.retired_at IS NULL
    WHERE t.topic = of_topic
);

-- Whether only programs with an archive delete finished hierarchies of this topic: as any of its handlers says; if all of
-- these are retired, as any of them said.
CREATE FUNCTION scoop.needs_archive(of_topic text) RETURNS boolean LANGUAGE sql STABLE
RETURN (
    SELECT coalesce(bool_or(t.is_archived) FILTER (WHERE h.handler IS NOT NULL), bool_or(t.is_archived), false)
    FROM scoop.keep_time t
    LEFT JOIN scoop.handler h ON h.topic = t.topic AND h.handler = t.handler AND h.retired_at IS NULL
    WHERE t.topic = of_topic
);

-- Before which time an event is older than this many seconds: an hour at least, and at most a thousand years.
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

-- Deletes a hierarchy at rest of which no event is younger than the given time, which counts as an hour at least. Those that
-- committed, and those with a run that was rolled back or without any run, have times of their own; by topic, these are the
-- times for topics of which no handler says another one. The verdict is `deleted`, or why the hierarchy is kept; the counts
-- are of the deleted rows. The last three values are a row of kept_hierarchy.
--
-- At rest is what has ended by the record alone, so that a lost working set deletes nothing.
-- Also kept is a hierarchy with a failed rollback, one that a join may still read or have rolled back, and a `Failed` that
-- would be sent again without its message. The messages of events of entities stay.
--
-- SECURITY DEFINER: a role needs only EXECUTE, and cannot delete anything else.
-- Locks: the advisory lock of the hierarchy, as hierarchy_lock.sql, and the rows of its messages, as redeliver_lock.sql;
-- does not wait for them: the verdict is `busy` then. A launch with the id of one of these messages waits.
CREATE FUNCTION scoop.prune(
    hierarchy uuid, keep_committed float8, keep_rolled_back float8, is_by_topic boolean, is_dry_run boolean,
    OUT verdict text, OUT message_count bigint, OUT event_count bigint,
    OUT kept_topic text, OUT kept_kind text, OUT kept_from timestamptz)
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
    is_rolled_back boolean;
    parts uuid[];  -- the hierarchy and its runs: the last ids of all lineages
    messages uuid[];
    is_recent boolean;
    is_whole boolean;
    is_at_rest boolean;
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
    IF root_messages IS NULL THEN
        verdict := 'absent';
        RETURN;
    END IF;
    -- The longer it is kept, the more rarely it is looked at.
    kept_topic := '';
    kept_kind := 'later';
    kept_from := clock_timestamp() + greatest(interval '1 hour', (clock_timestamp() - launched_at) / 8);
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
            kept_from := clock_timestamp() + interval '1 minute';
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM scoop.run r WHERE r.root = hierarchy) THEN
            verdict := 'unfinished';
            RETURN;
        END IF;
    END IF;

    -- also what former executions launched
    WITH RECURSIVE part (id) AS (
        SELECT hierarchy
      UNION
        SELECT begun.id
        FROM part
        CROSS JOIN LATERAL (
            SELECT e.message_id FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = part.id AND e.type::text = 'EMITTED'
            OFFSET 0
        ) launched
        CROSS JOIN LATERAL (
            SELECT scoop.run_id(seen.cooperation_lineage) AS id FROM scoop.message_event seen
            WHERE seen.type = 'SEEN' AND seen.message_id = launched.message_id
            OFFSET 0
        ) begun
    )
    SELECT array_agg(p.id) INTO parts FROM part p;

    WITH record AS MATERIALIZED (
        SELECT p.id AS part, e.*
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.type, e.message_id, e.coroutine_name, e.created_at, e.cooperation_lineage[1] AS root
            FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = p.id
            OFFSET 0
        ) e
    ),
    ran AS MATERIALIZED (
        SELECT r.message_id, bool_or(r.type = 'SEEN') AS begun, bool_or(r.type = 'COMMITTED') AS committed,
               bool_or(r.type = 'ROLLING_BACK') AS rolling_back, bool_or(r.type = 'ROLLED_BACK') AS rolled_back
        FROM record r
        WHERE r.type IN ('SEEN', 'COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK')
        GROUP BY r.part, r.message_id, r.coroutine_name
    )
    SELECT count(*), max(r.created_at), bool_and(r.root = hierarchy),
           EXISTS (SELECT FROM ran WHERE ran.rolled_back) OR NOT EXISTS (SELECT FROM ran WHERE ran.begun),
           NOT EXISTS (
               SELECT FROM ran
               WHERE ran.begun AND NOT (ran.committed OR ran.rolled_back)
                  OR ran.rolling_back AND NOT ran.rolled_back
                  OR ran.begun AND NOT ran.rolling_back
                     AND ran.message_id IN (SELECT t.message_id FROM record t WHERE t.type = 'ROLLBACK_EMITTED'))
           AND NOT EXISTS (
               SELECT
               FROM record e
               CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
               LEFT JOIN LATERAL (
                   SELECT d.redelivered_at FROM scoop.redelivery d WHERE d.message_id = e.message_id AND d.copy IS NULL
                   OFFSET 0
               ) d ON true
               CROSS JOIN LATERAL (SELECT coalesce(d.redelivered_at, e.created_at) AS at) delivered
               CROSS JOIN LATERAL (
                   SELECT FROM scoop.handler h
                   WHERE h.topic = m.topic AND h.dropped_at IS NULL
                     AND h.since <= delivered.at AND coalesce(h.retired_at, 'infinity') > delivered.at
                     AND (SELECT count(*) FROM scoop.message_event seen
                          WHERE seen.type = 'SEEN' AND seen.coroutine_name = h.handler
                            AND seen.message_id = e.message_id) = 0
                   LIMIT 1
               ) h
               WHERE e.type = 'EMITTED' AND e.part = hierarchy)
    INTO event_count, last_at, is_whole, is_rolled_back, is_at_rest
    FROM record r;

    SELECT array_agg(DISTINCT own.message_id) INTO messages
    FROM (
        SELECT e.message_id
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.message_id FROM scoop.message_event e
            WHERE scoop.run_id(e.cooperation_lineage) = p.id AND e.type::text = 'EMITTED'
            OFFSET 0
        ) e
      UNION ALL
        SELECT x.message_id
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (SELECT x.message_id FROM scoop.execution x WHERE x.run = p.id OFFSET 0) x
    ) own;

    SELECT m.payload ->> 'hierarchy' INTO about
    FROM scoop.message m
    WHERE m.id = ANY (root_messages) AND starts_with(m.topic, prefix)
      AND m.payload ->> 'hierarchy' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    LIMIT 1;

    SELECT m.topic INTO root_topic FROM scoop.message m WHERE m.id = root_messages[1];
    is_recent := last_at >= scoop.kept_since(CASE
        WHEN is_by_topic AND is_rolled_back THEN scoop.keep_of(root_topic, true, keep_rolled_back)
        WHEN is_by_topic THEN scoop.keep_of(root_topic, false, keep_committed)
        WHEN is_rolled_back THEN keep_rolled_back
        ELSE keep_committed
    END);

    verdict := CASE
        WHEN is_recent IS NOT FALSE THEN 'recent'
        WHEN NOT is_at_rest OR NOT is_whole THEN 'unfinished'
        WHEN EXISTS (
                SELECT FROM unnest(parts) p (id)
                CROSS JOIN LATERAL (
                    SELECT FROM scoop.join_member j WHERE j.run = p.id AND j.joined IS NULL AND j.refused IS NULL OFFSET 0
                ) waiting)
            OR EXISTS (SELECT FROM scoop.join_member j WHERE j.joined = hierarchy)
            OR about IS NOT NULL AND EXISTS (SELECT FROM scoop.run r WHERE r.root = about::uuid) THEN 'needed'
        -- a cancellation may hold the row of any message
        WHEN NOT is_dry_run AND (
                SELECT count(*) FROM (
                    SELECT m.id FROM scoop.message m WHERE m.id = ANY (messages) FOR UPDATE SKIP LOCKED) locked
            ) < cardinality(messages) THEN 'busy'
        ELSE 'deleted'
    END;
    CASE verdict
        WHEN 'recent', 'deleted' THEN
            kept_topic := coalesce(root_topic, '');
            kept_kind := CASE WHEN is_rolled_back THEN 'rolled_back' ELSE 'committed' END;
            kept_from := last_at;
        WHEN 'busy' THEN
            kept_from := clock_timestamp() + interval '1 minute';
        ELSE
    END CASE;
    IF verdict <> 'deleted' THEN
        event_count := 0;
        RETURN;
    END IF;
    -- The ids of messages with unique keys follow from these: they are of version 5.
    keys_until := last_at + least(scoop.keep_keys_of(root_topic), 3.2e10) * interval '1 second';
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
    GET DIAGNOSTICS event_count = ROW_COUNT;
    DELETE FROM scoop.return_value v WHERE scoop.run_id(v.cooperation_lineage) = ANY (parts);
    DELETE FROM scoop.ended_run r WHERE r.root = hierarchy;
    DELETE FROM scoop.execution x WHERE x.run = ANY (parts);
    DELETE FROM scoop.begun_step b WHERE b.run = ANY (parts);
    DELETE FROM scoop.intervention i WHERE i.root = hierarchy;
    DELETE FROM scoop.join_member j WHERE j.run = ANY (parts);
    DELETE FROM scoop.redelivery d WHERE d.message_id = ANY (messages);
    DELETE FROM scoop.kept_hierarchy k WHERE k.root = hierarchy;
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

-- The next hierarchies that may be due, for this worker: first those that were kept and are due now, then those whose launch
-- comes next in the order of the ids of events. Returns no list if another worker deletes. `next_event` is the place after
-- them; `is_more`, whether there may be more; `behind`, for how many seconds the oldest of all that are due has been so.
--
-- Launches are passed when the shortest of all times is over. A hierarchy that is kept for longer is remembered. So each
-- event is read once, and each hierarchy looked at a few times, regardless of how many are kept. The place also stays an hour
-- behind the oldest open transaction, and does not pass ids of later times than now: an event that becomes visible later would
-- not be read. The hour is for the difference of the clocks that made two ids, and for the time until their rows were written.
-- The oldest open transaction has no time that all roles can read. So each look remembers its time with the next
-- transaction, until all before that one have ended. A worker without an archive
-- leaves remembered ones alone whose topic needs one. Those that could not be deleted come after all others.
-- Locks: the row of retention; does not wait for it.
CREATE FUNCTION scoop.retention_next(
    worker uuid, keep_committed float8, keep_rolled_back float8, max_count bigint, has_archive boolean,
    OUT roots uuid[], OUT next_event uuid, OUT is_more boolean, OUT behind float8)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    page_size CONSTANT int := 1000;
    -- An event with a later id would end the search for good. The ids of programs begin with their time.
    ids_end CONSTANT uuid := (
        lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    -- before this transaction has a number, which would be open itself
    open_from CONSTANT xid8 := pg_snapshot_xmin(pg_current_snapshot());
    next_transaction CONSTANT xid8 := pg_snapshot_xmax(pg_current_snapshot());
    ended timestamptz;
    before timestamptz;
    event record;
    event_count int := 0;
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
    -- A worker that died keeps others waiting for so long. No worker takes the place for ten minutes: the clock was set back then.
    UPDATE scoop.retention r SET
        taken_by = worker, taken_until = clock_timestamp() + interval '5 minutes',
        complete_until = CASE WHEN open_from >= r.sampled_transaction AND r.sampled_at <= clock_timestamp()
                              THEN r.sampled_at ELSE r.complete_until END,
        (sampled_at, sampled_transaction) = (
            SELECT CASE WHEN sample.is_over THEN transaction_timestamp() ELSE r.sampled_at END,
                   CASE WHEN sample.is_over THEN next_transaction ELSE r.sampled_transaction END
            -- after the restore of a dump, the number may be that of a transaction to come
            FROM (SELECT r.sampled_transaction <= open_from OR r.sampled_transaction > next_transaction
                         OR r.sampled_at > clock_timestamp() AS is_over) AS sample)
    WHERE r.is_only
      AND (r.taken_by = worker
           OR (r.taken_until >= clock_timestamp() AND r.taken_until < clock_timestamp() + interval '10 minutes') IS NOT TRUE)
    RETURNING r.after_event, r.complete_until INTO next_event, ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A time to come says nothing of open transactions. In a range that allows the calculation, as the row may have an infinite
    -- time.
    ended := greatest('0001-01-01 00:00+00', CASE WHEN ended <= clock_timestamp() THEN ended END);

    WITH RECURSIVE lane (topic, kind) AS (
        (SELECT k.topic, k.kind FROM scoop.kept_hierarchy k ORDER BY k.topic, k.kind LIMIT 1)
      UNION ALL
        SELECT following.topic, following.kind
        FROM lane
        CROSS JOIN LATERAL (
            SELECT k.topic, k.kind FROM scoop.kept_hierarchy k
            WHERE (k.topic, k.kind) > (lane.topic, lane.kind)
            ORDER BY k.topic, k.kind LIMIT 1
        ) following
    )
    SELECT coalesce(array_agg(due.root), '{}'), coalesce(max(due.behind), 0) INTO roots, behind
    FROM (
        SELECT k.root, extract(epoch FROM times.before - greatest(k.since, '0001-01-01 00:00+00')) AS behind
        FROM lane
        CROSS JOIN LATERAL (
            SELECT CASE lane.kind
                WHEN 'committed' THEN scoop.kept_since(scoop.keep_of(lane.topic, false, keep_committed))
                WHEN 'rolled_back' THEN scoop.kept_since(scoop.keep_of(lane.topic, true, keep_rolled_back))
                ELSE clock_timestamp() END AS before
            OFFSET 0
        ) times
        CROSS JOIN LATERAL (
            SELECT k.root, k.since FROM scoop.kept_hierarchy k
            WHERE k.topic = lane.topic AND k.kind = lane.kind AND k.since < times.before
            ORDER BY k.since LIMIT max_count
        ) k
        WHERE lane.kind <> 'undeletable'
          AND (has_archive OR lane.kind = 'later' OR NOT scoop.needs_archive(lane.topic))
        LIMIT max_count
    ) due;

    SELECT scoop.kept_since(least(keep_committed, keep_rolled_back, min(t.committed), min(t.rolled_back))) INTO before
    FROM scoop.keep_time t;
    behind := greatest(behind, extract(epoch FROM before - (
        SELECT greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', e.created_at))
        FROM scoop.message_event e WHERE e.id > next_event AND e.id < ids_end ORDER BY e.id LIMIT 1)));
    -- the least of all times to keep, which is an hour
    before := least(before, scoop.kept_since(3600) - (clock_timestamp() - ended));
    IF cardinality(roots) < max_count THEN
        FOR event IN
            SELECT e.id, greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', e.created_at)) AS created_at,
                   CASE WHEN e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1
                        THEN e.cooperation_lineage[1] END AS root
            FROM scoop.message_event e
            WHERE e.id > next_event AND e.id < ids_end
            ORDER BY e.id
            LIMIT page_size
        LOOP
            -- a time in the future, by a wrong clock, is not waited for
            EXIT WHEN event.created_at BETWEEN before AND clock_timestamp() + interval '1 day';
            event_count := event_count + 1;
            next_event := event.id;
            IF event.root IS NOT NULL THEN
                roots := roots || event.root;
                EXIT WHEN cardinality(roots) >= max_count;
            END IF;
        END LOOP;
    END IF;
    IF cardinality(roots) < max_count AND event_count < page_size THEN
        roots := roots || ARRAY(
            SELECT k.root FROM scoop.kept_hierarchy k
            WHERE k.topic = '' AND k.kind = 'undeletable' AND k.since < clock_timestamp()
            ORDER BY k.since LIMIT max_count - cardinality(roots));
    END IF;
    is_more := cardinality(roots) >= max_count OR event_count = page_size;
    IF NOT is_more AND cardinality(roots) = 0 THEN
        UPDATE scoop.retention r SET taken_until = NULL, after_event = greatest(r.after_event, next_event) WHERE r.is_only;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_next (uuid, float8, float8, bigint, boolean) FROM PUBLIC;

-- Deletes those of these hierarchies that are due, remembers the others, and moves the place. Deletes only hierarchies that
-- are also in `archived`; one that is due and not in it is looked at again after `retry_after` seconds. Without such a list,
-- of a worker without an archive, only those are deleted whose topic needs none. The verdict of the others is `unarchived`.
-- Does nothing, and returns no verdict, if another worker has taken the place meanwhile.
-- Locks: the row of retention, so that no other worker takes the place before the commit; then those of scoop.prune, of
-- each hierarchy.
CREATE FUNCTION scoop.retention_settle(
    worker uuid, keep_committed float8, keep_rolled_back float8, roots uuid[], archived uuid[], next_event uuid,
    is_last boolean, retry_after float8)
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
                    ELSE NOT scoop.needs_archive(scoop.root_topic(u.root)) END AS is_archived
        FROM unnest(roots) u (root) GROUP BY u.root ORDER BY u.root
    LOOP
        SELECT * INTO pruned FROM scoop.prune(asked.root, keep_committed, keep_rolled_back, true, NOT asked.is_archived);
        IF pruned.verdict = 'deleted' AND NOT asked.is_archived THEN
            pruned.verdict := 'unarchived';
            pruned.message_count := 0;
            pruned.event_count := 0;
            IF archived IS NOT NULL THEN
                pruned.kept_topic := '';
                pruned.kept_kind := 'later';
                pruned.kept_from := clock_timestamp() + retry_after * interval '1 second';
            END IF;
        END IF;
        IF pruned.verdict = 'absent' THEN
            DELETE FROM scoop.kept_hierarchy k WHERE k.root = asked.root;
        ELSIF pruned.verdict <> 'deleted' THEN
            INSERT INTO scoop.kept_hierarchy AS kept (root, topic, kind, since)
            VALUES (asked.root, pruned.kept_topic, pruned.kept_kind, pruned.kept_from)
            ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET
                topic = excluded.topic, kind = excluded.kind, since = excluded.since;
        END IF;
        verdict := pruned.verdict;
        message_count := pruned.message_count;
        event_count := pruned.event_count;
        RETURN NEXT;
    END LOOP;
    UPDATE scoop.retention r SET
        after_event = greatest(r.after_event, next_event),
        taken_until = CASE WHEN NOT is_last THEN clock_timestamp() + interval '5 minutes' END
    WHERE r.is_only;
END $$;
REVOKE EXECUTE ON FUNCTION
    scoop.retention_settle (uuid, float8, float8, uuid[], uuid[], uuid, boolean, float8) FROM PUBLIC;

-- Remembers a hierarchy whose deletion or archive failed, to be looked at again after `retry_after` seconds, and after a further
-- failure twice as long, up to 32 times. Returns the topic of its first message.
-- Locks: its row of kept_hierarchy.
CREATE FUNCTION scoop.retention_put_off(hierarchy uuid, why text, retry_after float8) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO scoop.kept_hierarchy AS kept (root, topic, kind, since, failures, error)
    VALUES (hierarchy, '', 'undeletable', clock_timestamp() + retry_after * interval '1 second', 1, left(why, 1000))
    ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET
        topic = '', kind = 'undeletable', failures = greatest(0, least(kept.failures, 1000)) + 1, error = left(why, 1000),
        since = clock_timestamp() + retry_after * power(2, greatest(0, least(kept.failures, 5))) * interval '1 second';
    RETURN scoop.root_topic(hierarchy);
END $$;
REVOKE EXECUTE ON FUNCTION scoop.retention_put_off (uuid, text, float8) FROM PUBLIC;

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
