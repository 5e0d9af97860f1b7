SET LOCAL search_path = pg_catalog, pg_temp;

-- Queues with a limit.

-- How many runs of these handlers wait for a worker? The count ends at `at_most`. It goes through the index of ready runs from one
-- queue to the next, so that sleeping runs cost nothing, and through that of parked runs.
-- Locks: nothing.
CREATE FUNCTION scoop.waiting_runs(names text[], at_most bigint) RETURNS bigint LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE queue (handler, topic, lane) AS (
            SELECT first.handler, first.topic, first.reserved_for
            FROM unnest(names) AS own (name)
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = own.name
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) first
            UNION ALL
            SELECT next.handler, next.topic, next.reserved_for
            FROM queue q
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = q.handler AND (r.topic, r.reserved_for) > (q.topic, q.lane)
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) next
        )
        SELECT count(*)
        FROM (
            SELECT waiting.id
            FROM queue q
            CROSS JOIN LATERAL (
                (SELECT due.id
                 FROM (VALUES (1), (0), (-1)) AS level (priority)
                 CROSS JOIN LATERAL (
                     SELECT r.id FROM scoop.run r
                     WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic
                       AND r.reserved_for = q.lane AND scoop.priority_of(r.context) = level.priority
                       AND r.ready_at <= (SELECT clock_timestamp())
                     ORDER BY r.ready_at LIMIT at_most
                 ) due)
                UNION ALL
                -- the state as a text, and the order, choose the index of parked runs
                (SELECT r.id FROM scoop.run r
                 WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = q.handler AND r.topic = q.topic
                   AND r.reserved_for = q.lane AND r.ready_at > (SELECT clock_timestamp())
                 ORDER BY r.limit_key LIMIT at_most)
            ) waiting
            LIMIT at_most
        ) waiting
    );
END $$;

-- Leases places in the queue of a saga with a limit to a program that launches messages: as many as it needs now, and a part of
-- those that are left. The places of all programs and the runs that wait for a worker are together no more than the limit, so a
-- launch with a place does not exceed it. The holder has `in_use` places for launches under way and for later ones. A message of
-- `in_doubt` may be launched or not: it keeps its place until it is visible, since its run counts from then on. `most` is null
-- if the saga has no such limit. Without anything in use or needed, the holder gives its places back.
--
-- The count ends at the limit.
-- Locks: an advisory lock of the saga: waits for other leases of it. Then the row of the holder, and expired ones.
CREATE FUNCTION scoop.lease_places(
    of_saga text, of_holder uuid, in_use bigint, in_doubt uuid[], needed bigint,
    OUT most bigint, OUT granted bigint, OUT is_scarce boolean, OUT launched uuid[])
LANGUAGE plpgsql SECURITY DEFINER
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '2s' SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest text;
    names text[];
    taken bigint;
    room bigint;
BEGIN
    IF (of_holder IS NOT NULL AND in_use BETWEEN 0 AND 100000 AND needed BETWEEN 0 AND 100000
        AND cardinality(in_doubt) <= 100000) IS NOT TRUE THEN
        RAISE EXCEPTION 'a program cannot hold % places and need % more', in_use, needed
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT l.saga INTO newest FROM scoop.run_limit l
    WHERE l.saga >= '' AND l.queue > 0 AND of_saga = ANY (l.handlers) ORDER BY l.saga LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('scoop.queue_lease ' || newest, 3));

    -- Each statement from here on sees what the former holders of the lock have done.
    SELECT least(l.queue, 100000), l.handlers INTO most, names FROM scoop.run_limit l WHERE l.saga = newest AND l.queue > 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- No program leases places for a minute: such a row is not of one, or the clock was set back.
    DELETE FROM scoop.queue_lease l
    WHERE l.saga = ANY (names)
      AND (l.until > clock_timestamp() AND l.until < clock_timestamp() + interval '1 minute') IS NOT TRUE;
    SELECT coalesce(array_agg(d.id), '{}') INTO launched
    FROM unnest(in_doubt) AS d (id)
    WHERE (SELECT count(*) FROM scoop.message m WHERE m.id = d.id) > 0;
    taken := in_use + cardinality(in_doubt) - cardinality(launched);
    room := most - taken - (
        SELECT coalesce(sum(greatest(least(coalesce(l.places, 0), 100000), 0)), 0) FROM scoop.queue_lease l
        WHERE l.saga = ANY (names) AND l.holder <> of_holder);
    IF room > 0 AND needed > 0 THEN
        room := room - scoop.waiting_runs(names, room);
    END IF;
    room := greatest(room, 0);
    granted := CASE WHEN room > needed AND needed > 0 THEN needed + least((room - needed) / 16, 1000) ELSE least(room, needed) END;
    is_scarce := room - granted < most - most / 4;
    IF taken + granted > 0 THEN
        INSERT INTO scoop.queue_lease AS l (saga, holder, places, until)
        VALUES (newest, of_holder, taken + granted, clock_timestamp() + interval '5 seconds')
        ON CONFLICT ON CONSTRAINT queue_lease_pkey DO UPDATE SET places = excluded.places, until = excluded.until;
    ELSE
        DELETE FROM scoop.queue_lease l WHERE l.saga = newest AND l.holder = of_holder;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION scoop.lease_places (text, uuid, bigint, uuid[], bigint) FROM PUBLIC;
