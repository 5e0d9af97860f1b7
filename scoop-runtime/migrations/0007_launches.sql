SET LOCAL search_path = pg_catalog, pg_temp;

-- Launches under a condition, for transactions of any session. `message_insert_claiming.sql` does the same on connections
-- of the engine and claims runs for the launching worker; a test compares the rows of both.

-- SECURITY DEFINER: a role needs only EXECUTE. So the function checks that each message starts a hierarchy of its own,
-- and claims no run.

-- Publishes messages that start hierarchies of their own, one run for each handler listed at this moment; but none that
-- is there already, as one that may be launched only once can be, and none at all if one of them requires a handler and
-- there is none. The messages are an array of objects with id, root, topic and payload, and what else was said.
-- Locks: a message that another transaction is launching with the same id: waits for that.
CREATE FUNCTION scoop.launch(
    messages jsonb, OUT launched bigint, OUT handlers text[], OUT refused text, OUT refused_type text)
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    taken uuid;
BEGIN
    SELECT a.root INTO taken
    FROM jsonb_to_recordset(messages) AS a (id uuid, root uuid)
    WHERE (SELECT count(*) FROM scoop.message known WHERE known.id = a.id) = 0
      AND (
          SELECT count(*) FROM scoop.message_event e
          WHERE scoop.run_id(e.cooperation_lineage) = a.root
      ) + (SELECT count(*) FROM scoop.run r WHERE r.root = a.root) > 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'permission denied for hierarchy %: another message has started it', taken
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF (SELECT count(DISTINCT a.root) < count(DISTINCT a.id) FROM jsonb_to_recordset(messages) AS a (id uuid, root uuid)) THEN
        RAISE EXCEPTION 'two launched messages have one hierarchy' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (
        SELECT FROM jsonb_to_recordset(messages) AS a (payload jsonb, context jsonb)
        -- a context is stored with each event of a run, and goes to its children
        CROSS JOIN LATERAL (VALUES (a.payload, 16777216), (a.context, 1048576)) AS given (value, bytes_max)
        WHERE jsonb_typeof(a.context) <> 'object' OR NOT scoop.is_readable(given.value, given.bytes_max)
    ) THEN
        RAISE EXCEPTION 'a launched message cannot be read by programs: its context is no object or larger than 1 MiB, its '
            'payload is larger than 16 MiB, or a value has a number beyond 1.7e308 or is nested deeper than 100'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The times of the caller are of a range that every worker can represent and calculate with.
    IF EXISTS (
        SELECT FROM jsonb_to_recordset(messages) AS a (due timestamptz, deadlines timestamptz[])
        CROSS JOIN LATERAL unnest(a.deadlines || a.due) AS given (time)
        WHERE given.time < '1970-01-01 00:00+00' OR given.time >= '10000-01-01 00:00+00'
    ) THEN
        RAISE EXCEPTION 'a time of a launched message is not between the years 1970 and 9999'
            USING ERRCODE = 'datetime_field_overflow';
    END IF;
    WITH asked AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(messages) AS m (
            id uuid, root uuid, topic varchar, payload jsonb, context jsonb, due timestamptz, deadlines timestamptz[],
            required text)
    ),
    -- by the same snapshot as the deliveries below; counts, so that these are looked up, one by one
    refusal AS MATERIALIZED (
        SELECT a.topic, a.required
        FROM asked a
        WHERE a.required IS NOT NULL
          AND (SELECT count(*) FROM scoop.handler h WHERE h.topic = a.topic AND h.retired_at IS NULL) = 0
          AND (SELECT count(*) FROM scoop.message known WHERE known.id = a.id) = 0
        LIMIT 1
    ),
    accepted AS MATERIALIZED (
        SELECT * FROM asked WHERE NOT EXISTS (SELECT FROM refusal)
    ),
    published AS (
        INSERT INTO scoop.message (id, topic, payload)
        SELECT a.id, a.topic, coalesce(a.payload, 'null') FROM accepted a
        ON CONFLICT (id) DO NOTHING
        RETURNING id
    ),
    recorded AS (
        INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, context)
        SELECT a.id, 'EMITTED', ARRAY[a.root], nullif(a.context, '{}')
        FROM accepted a JOIN published USING (id)
        RETURNING message_id, created_at, cooperation_lineage[1] AS root
    ),
    delivered AS (
        INSERT INTO scoop.run
            (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
        SELECT d.root, d.run, ARRAY[d.root, d.run], d.id, d.topic, d.handler,
               -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
               greatest(least(coalesce(d.due, r.created_at), d.give_up_at), r.created_at), r.created_at, nullif(d.context, '{}'), d.give_up_at
        FROM (
            SELECT a.*, h.handler, scoop.gen_uuid_v7() AS run,
                   (SELECT min(deadline) FROM unnest(a.deadlines) deadline) AS give_up_at
            FROM accepted a
            JOIN scoop.handler h ON h.topic = a.topic AND h.retired_at IS NULL
        ) d
        JOIN recorded r ON r.message_id = d.id
        RETURNING handler, message_id
    )
    SELECT (SELECT count(*) FROM published),
           ARRAY(
               SELECT DISTINCT d.handler::text FROM delivered d
               UNION ALL
               SELECT kept FROM recorded r CROSS JOIN LATERAL scoop.keep_unhandled(r.root) AS kept
               WHERE NOT EXISTS (SELECT FROM delivered d WHERE d.message_id = r.message_id)),
           (SELECT r.topic FROM refusal r), (SELECT r.required FROM refusal r)
    INTO launched, handlers, refused, refused_type;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.launch (jsonb) FROM PUBLIC;

-- Launches the first message of a finished hierarchy again, in a new one: with its payload or another, and with its context but for
-- these keys. A second request answers with the hierarchy of the first one, unless `again`. The answer is that, or `still running`,
-- `committed` if any handler of the message has, or `absent` if there is no such hierarchy.
-- Locks: the row of the message, then those of scoop.launch. The caller has the advisory lock of the hierarchy, as hierarchy_lock.sql.
CREATE FUNCTION scoop.relaunch(
    hierarchy uuid, new_root uuid, new_payload jsonb, left_out_keys text[], even_if_committed boolean, again boolean,
    note text, source text, is_dry_run boolean, OUT answer text, OUT relaunched uuid, OUT handlers text[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    first record;
BEGIN
    SELECT m.id, m.topic, m.payload, e.context INTO first
    FROM scoop.message_event e
    JOIN scoop.message m ON m.id = e.message_id
    WHERE scoop.run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED'
    LIMIT 1;
    IF NOT FOUND THEN
        answer := 'absent';
        RETURN;
    END IF;
    IF NOT is_dry_run THEN
        -- Waits for a redelivery of the message, which sees a relaunch that is committed.
        PERFORM FROM scoop.message m WHERE m.id = first.id FOR KEY SHARE;
    END IF;
    -- whether one of its runs has committed is unknown if the row is gone
    PERFORM FROM scoop.message_event seen
    LEFT JOIN scoop.ended_run r ON r.root = hierarchy AND r.id = scoop.run_id(seen.cooperation_lineage)
    WHERE seen.type = 'SEEN' AND seen.message_id = first.id
      AND CASE WHEN r.id IS NULL THEN NOT scoop.is_in_run(hierarchy, scoop.run_id(seen.cooperation_lineage)) END;
    SELECT r.root INTO relaunched
    FROM scoop.relaunch r
    -- an attempt without an answer may have been made
    WHERE r.of_root = hierarchy AND (NOT again OR r.root = new_root)
    ORDER BY r.requested_at, r.root
    LIMIT 1;
    answer := CASE
        WHEN relaunched = new_root THEN 'accepted'
        WHEN relaunched IS NOT NULL THEN 'relaunched before'
        WHEN EXISTS (SELECT FROM scoop.run r WHERE r.root = hierarchy AND r.state <> 'failed') THEN 'still running'
        WHEN NOT even_if_committed AND EXISTS (
                SELECT FROM scoop.ended_run r
                WHERE r.root = hierarchy AND cardinality(r.lineage) = 2 AND r.outcome = 'committed') THEN 'committed'
    END;
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;
    answer := 'accepted';
    relaunched := new_root;
    IF is_dry_run THEN
        RETURN;
    END IF;
    SELECT l.handlers INTO handlers FROM scoop.launch(jsonb_build_array(jsonb_build_object(
        'id', scoop.gen_uuid_v7(), 'root', new_root, 'topic', first.topic,
        'payload', coalesce(new_payload, first.payload), 'context', coalesce(first.context, '{}') - left_out_keys))) l;
    INSERT INTO scoop.relaunch (root, of_root, note, source) VALUES (new_root, hierarchy, note, source);
END $$;

-- Records by what messages are found that this transaction has launched. Those that were there before are left out: their time is that
-- of another transaction. The arrays have an element for each field of a message.
-- Locks: the new rows.
CREATE FUNCTION scoop.record_found_by(messages uuid[], numbers smallint[], names text[], "values" jsonb[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
    SELECT CASE WHEN cardinality(e.cooperation_lineage) = 1 THEN e.cooperation_lineage[1] ELSE a.message END,
           a.name, a.value, a.number, e.cooperation_lineage[1], e.created_at
    FROM unnest(messages, numbers, names, "values") AS a (message, number, name, value)
    CROSS JOIN LATERAL (
        SELECT m.id FROM scoop.message m WHERE m.id = a.message AND m.created_at = CURRENT_TIMESTAMP OFFSET 0
    ) launched
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.created_at FROM scoop.message_event e
        WHERE e.message_id = launched.id AND e.type = 'EMITTED'
        OFFSET 0
    ) e
    ON CONFLICT ON CONSTRAINT found_by_pkey DO NOTHING;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.record_found_by (uuid[], smallint[], text[], jsonb[]) FROM PUBLIC;

-- Records a signal for a role that may not write the table, unless there is one with its id. Returns whether it is new.
-- A program with sagas delivers it: the caller could keep the rows of the runs locked that it reaches.
-- Locks: the new row; a signal that another transaction inserts with the same id: waits for that.
-- `traceparent` is the span of the sender, by W3C Trace Context; a malformed one is left out.
CREATE FUNCTION scoop.send_signal(
    id uuid, name text, key text, payload jsonb, seconds_kept float8, traceparent text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- as `refused_key`
    IF (octet_length(key) BETWEEN 1 AND 255 AND octet_length(name) BETWEEN 1 AND 255) IS NOT TRUE THEN
        RAISE EXCEPTION 'the name or the key of a signal does not have 1 to 255 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT scoop.is_readable(payload, 16777216) THEN
        RAISE EXCEPTION 'a signal cannot be read by programs: its payload is larger than 16 MiB, has a number beyond 1.7e308, or '
            'is nested deeper than 100' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (seconds_kept BETWEEN 0 AND 1e11) IS NOT TRUE THEN
        RAISE EXCEPTION 'a signal cannot be kept for % seconds', seconds_kept USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO scoop.signal (id, name, key, payload, kept_until, traceparent)
    VALUES (id, name, key, coalesce(payload, 'null'),
            least(clock_timestamp() + seconds_kept * interval '1 second', '9999-12-31 00:00+00'),
            CASE WHEN traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN traceparent END)
    ON CONFLICT ON CONSTRAINT signal_pkey DO NOTHING;
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.send_signal (uuid, text, text, jsonb, float8, text) FROM PUBLIC;
