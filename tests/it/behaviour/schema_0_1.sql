SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE SCHEMA scoop;

CREATE TYPE scoop.awaited AS (
	signal text,
	key text,
	children integer
);

CREATE TYPE scoop.message_event_type AS ENUM (
    'EMITTED',
    'SEEN',
    'SUSPENDED',
    'COMMITTED',
    'ROLLING_BACK',
    'ROLLBACK_EMITTED',
    'ROLLED_BACK',
    'ROLLBACK_FAILED',
    'CANCELLATION_REQUESTED'
);

CREATE TYPE scoop.newest_execution AS (
	number integer,
	since timestamp with time zone,
	message_id uuid
);

CREATE TYPE scoop.run_outcome AS ENUM (
    'committed',
    'rolled_back',
    'dropped'
);

CREATE TYPE scoop.run_state AS ENUM (
    'ready',
    'running',
    'waiting',
    'ended',
    'stuck',
    'failed'
);

CREATE TYPE scoop.suspended AS (
	jump text,
	definition integer,
	iteration integer,
	handler_iteration integer,
	wait jsonb
);

CREATE TYPE scoop.tries AS (
	attempts integer,
	retries integer,
	unknown_attempts integer,
	tried_under integer[]
);

CREATE FUNCTION scoop.add_ballast() RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    INSERT INTO "scoop".run
        (root, id, lineage, message_id, topic, handler, state, rolling_back, rollback_requested, failure, last_event_at,
         reason)
    SELECT '00000000-0000-0000-0000-000000000000', gen_random_uuid(), '{}', '00000000-0000-0000-0000-000000000000',
           'none', 'none', 'ended', true, true, '{}', now(), 'ballast: see the migrations'
    FROM generate_series(1, 3000)
    WHERE NOT EXISTS (SELECT FROM "scoop".run r WHERE r.root = '00000000-0000-0000-0000-000000000000');
$$;

CREATE FUNCTION scoop.awaited_signal(wait jsonb) RETURNS scoop.awaited
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (wait ? 'signal'::text) THEN ROW((wait #>> '{signal,name}'::text[]), (wait #>> '{signal,key}'::text[]), NULL::integer)::scoop.awaited ELSE NULL::scoop.awaited END;

CREATE FUNCTION scoop.bytes_of(value jsonb) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (CASE WHEN (pg_column_compression(value) IS NULL) THEN 1 ELSE 255 END * (pg_column_size(value))::bigint);

CREATE FUNCTION scoop.can_give_up(giving_up boolean, rollback_since timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((NOT giving_up) AND (rollback_since IS NULL));

CREATE FUNCTION scoop.decide_wait(of_root uuid, run uuid, of_epoch bigint, decided jsonb) RETURNS text[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    d record;
    launcher "scoop".run;
    wait_until timestamptz;
    late_handlers text[] := '{}';
    forgotten uuid[];
BEGIN
    SELECT * INTO d FROM jsonb_to_record(decided) AS d (
        gone_on uuid[], closed uuid[], late jsonb, wait jsonb, children int, until timestamptz);
    SELECT r.* INTO launcher FROM "scoop".run r
    WHERE r.root = of_root AND r.id = run AND r.epoch = of_epoch AND r.state = 'running'
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF d.closed <> '{}' THEN
        WITH dropped AS (
            DELETE FROM "scoop".run child
            WHERE child.root = of_root AND child.parent = run AND child.message_id = ANY (d.closed)
              AND child.epoch = child.unclaimed_epoch
            RETURNING child AS run
        )
        INSERT INTO "scoop".ended_run SELECT e.* FROM dropped CROSS JOIN LATERAL "scoop".dropped_run(dropped.run) e;
    END IF;
    -- a cancellation would not mark them
    IF d.late <> '[]' AND NOT launcher.giving_up THEN
        WITH delivered AS (
            INSERT INTO "scoop".run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
            SELECT of_root, h.run, launcher.id, launcher.lineage || h.run, late.message, h.topic, h.handler,
                   clock_timestamp(), launcher.last_event_at, e.context,
                   late.give_up_at
            FROM jsonb_to_recordset(d.late) AS late (message uuid, give_up_at timestamptz)
            JOIN "scoop".message m ON m.id = late.message
            JOIN "scoop".message_event e ON e.type = 'EMITTED' AND e.message_id = late.message
            CROSS JOIN LATERAL (
                SELECT h.topic, h.handler, "scoop".gen_uuid_v7() AS run
                FROM "scoop".handler h
                WHERE h.topic = m.topic AND h.retired_at IS NULL
                  AND NOT EXISTS (
                      SELECT FROM "scoop".message_event s
                      WHERE s.type = 'SEEN' AND s.message_id = late.message
                        AND s.coroutine_name = ANY (h.handler::text || coalesce(h.was, '{}')))
                  AND NOT EXISTS (
                      SELECT FROM "scoop".run child
                      WHERE child.root = of_root AND child.parent = launcher.id AND child.message_id = late.message
                        AND child.handler = ANY (h.handler::text || coalesce(h.was, '{}')))
                OFFSET 0
            ) h
            RETURNING handler
        )
        SELECT coalesce(array_agg(handler::text), '{}') INTO late_handlers FROM delivered;
        d.children := d.children + cardinality(late_handlers);
    END IF;
    IF d.gone_on <> '{}' THEN
        WITH released AS (
            UPDATE "scoop".run child SET parent = NULL
            WHERE child.root = of_root AND child.parent = run AND child.message_id = ANY (d.gone_on)
            RETURNING child.id, child.state
        )
        SELECT array_agg(released.id) INTO forgotten FROM released WHERE released.state = 'ended';
        DELETE FROM "scoop".run child WHERE child.root = of_root AND child.id = ANY (forgotten);
    END IF;
    -- as in "scoop".settle
    wait_until := CASE WHEN d.children IS NULL THEN (d.wait ->> 'until')::timestamptz
                       ELSE coalesce(d.until, '9999-12-31 23:59:59.999999+00') END;
    IF d.children IS NULL AND d.wait ? 'signal' THEN
        wait_until := coalesce(wait_until, '9999-12-31 23:59:59.999999+00');
    END IF;
    UPDATE "scoop".run r
    SET state = CASE WHEN d.children IS NULL THEN 'waiting' ELSE 'ready' END::"scoop".run_state,
        owner = NULL,
        ready_at = CASE WHEN r.giving_up THEN clock_timestamp() WHEN wait_until IS NULL THEN r.ready_at
                        ELSE greatest(least(wait_until, r.give_up_at), clock_timestamp()) END,
        awaited = CASE WHEN d.children IS NOT NULL THEN ROW(NULL, NULL, d.children)::"scoop".awaited
                       WHEN NOT r.giving_up THEN "scoop".awaited_signal(d.wait) END,
        suspended = ROW(
            (r.suspended).jump, (r.suspended).definition, (r.suspended).iteration, (r.suspended).handler_iteration,
            CASE WHEN d.wait ? 'messages' THEN d.wait END)::"scoop".suspended,
        tries = NULL, reason = NULL, epoch = r.epoch + 1
    WHERE r.root = of_root AND r.id = run;
    RETURN late_handlers;
END $$;

CREATE FUNCTION scoop.gen_uuid_v7() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;

CREATE FUNCTION scoop.run_id(lineage uuid[]) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (lineage)[cardinality(lineage)];

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE scoop.ended_run (
    root uuid NOT NULL,
    id uuid NOT NULL,
    parent uuid,
    lineage uuid[] NOT NULL,
    message_id uuid NOT NULL,
    topic character varying(63) NOT NULL,
    handler character varying(255) NOT NULL,
    outcome scoop.run_outcome NOT NULL,
    failure jsonb,
    rollback_failure jsonb,
    context jsonb,
    queued_at timestamp with time zone,
    began_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    put_off boolean DEFAULT false NOT NULL
);
ALTER TABLE ONLY scoop.ended_run ALTER COLUMN failure SET STORAGE EXTERNAL;
ALTER TABLE ONLY scoop.ended_run ALTER COLUMN rollback_failure SET STORAGE EXTERNAL;

CREATE TABLE scoop.message_event (
    id uuid DEFAULT scoop.gen_uuid_v7() NOT NULL,
    message_id uuid NOT NULL,
    type scoop.message_event_type NOT NULL,
    coroutine_name character varying(255),
    coroutine_identifier character varying(255),
    step character varying(255),
    cooperation_lineage uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    exception jsonb,
    context jsonb,
    next_step integer,
    child_failure_handler_iteration integer,
    jump text,
    definition integer,
    wait jsonb
);
ALTER TABLE ONLY scoop.message_event ALTER COLUMN exception SET STORAGE EXTERNAL;
ALTER TABLE ONLY scoop.message_event ALTER COLUMN wait SET STORAGE EXTERNAL;

CREATE TABLE scoop.run (
    root uuid NOT NULL,
    id uuid NOT NULL,
    parent uuid,
    lineage uuid[] NOT NULL,
    message_id uuid NOT NULL,
    topic character varying(63) NOT NULL,
    handler character varying(255) NOT NULL,
    state scoop.run_state DEFAULT 'ready'::scoop.run_state NOT NULL,
    ready_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    queued_at timestamp with time zone,
    began_at timestamp with time zone,
    owner uuid,
    epoch bigint DEFAULT 0 NOT NULL,
    unclaimed_epoch bigint DEFAULT 0 NOT NULL,
    rolling_back boolean DEFAULT false NOT NULL,
    rollback_requested boolean DEFAULT false NOT NULL,
    step character varying(255),
    suspended scoop.suspended,
    suspensions integer DEFAULT 0 NOT NULL,
    completions jsonb,
    outputs jsonb,
    context jsonb,
    replied boolean DEFAULT false NOT NULL,
    giving_up boolean DEFAULT false NOT NULL,
    give_up_at timestamp with time zone,
    rollback_since timestamp with time zone,
    failure jsonb,
    rollback_failure jsonb,
    last_event_at timestamp with time zone NOT NULL,
    tries scoop.tries,
    reason text,
    reserved_for integer DEFAULT 0 NOT NULL,
    refused_by integer[],
    awaited scoop.awaited,
    signalled_by character varying(55),
    newest_execution scoop.newest_execution,
    limit_key character varying(255),
    parked_since timestamp with time zone
)
WITH (fillfactor='50', vacuum_truncate='false', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY scoop.run ALTER COLUMN root SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN parent SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN topic SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN handler SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN state SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN ready_at SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN give_up_at SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN failure SET STORAGE EXTERNAL;
ALTER TABLE ONLY scoop.run ALTER COLUMN rollback_failure SET STORAGE EXTERNAL;
ALTER TABLE ONLY scoop.run ALTER COLUMN limit_key SET STATISTICS 0;
ALTER TABLE ONLY scoop.run ALTER COLUMN parked_since SET STATISTICS 0;

CREATE FUNCTION scoop.dropped_run(r scoop.run) RETURNS scoop.ended_run
    LANGUAGE sql STABLE
    RETURN (SELECT ROW((dropped_run.r).root, (dropped_run.r).id, (dropped_run.r).parent, (dropped_run.r).lineage, (dropped_run.r).message_id, (dropped_run.r).topic, (dropped_run.r).handler, (CASE WHEN (done.created_at IS NOT NULL) THEN 'committed'::text ELSE 'dropped'::text END)::scoop.run_outcome, CASE WHEN (done.created_at IS NULL) THEN (dropped_run.r).failure ELSE NULL::jsonb END, NULL::jsonb, CASE WHEN (done.created_at IS NULL) THEN (dropped_run.r).context ELSE done.context END, (dropped_run.r).queued_at, (dropped_run.r).began_at, COALESCE(done.created_at, (dropped_run.r).last_event_at), false)::scoop.ended_run AS "row" FROM ((SELECT) always LEFT JOIN LATERAL (SELECT e.created_at, e.context FROM scoop.message_event e WHERE ((dropped_run.r).rollback_requested AND ((dropped_run.r).epoch = (dropped_run.r).unclaimed_epoch) AND (scoop.run_id(e.cooperation_lineage) = (dropped_run.r).id) AND ((e.type)::text = 'COMMITTED'::text) AND ((e.coroutine_name)::text = ((dropped_run.r).handler)::text)) ORDER BY e.created_at DESC LIMIT 1) done ON (true)));

CREATE FUNCTION scoop.failed_below(of_root uuid, above uuid, limit_to bigint, read_max bigint) RETURNS TABLE(run uuid, handler text, failure jsonb, place bigint)
    LANGUAGE sql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    -- without duplicates, so that it ends at forged rows that lead in a circle
    WITH RECURSIVE below (id) AS (
        SELECT r.id FROM "scoop".run r WHERE r.root = of_root AND r.parent = above AND r.state::text = 'failed'
        UNION
        SELECT child.id
        FROM below
        CROSS JOIN LATERAL (
            SELECT r.id FROM "scoop".run r
            WHERE r.root = of_root AND r.parent = below.id AND r.state::text = 'failed'
            OFFSET 0
        ) child
    ),
    nearest AS MATERIALIZED (
        SELECT r.id, r.handler, r.rollback_failure, r.ready_at, cardinality(r.lineage) AS depth,
               -- a count, so that each is looked up by index
               (SELECT count(*) FROM (
                    SELECT FROM "scoop".run child
                    WHERE child.root = of_root AND child.parent = r.id AND child.state::text = 'failed' LIMIT 1) one
               ) = 0 AS is_first
        FROM (SELECT below.id FROM below LIMIT read_max) read
        CROSS JOIN LATERAL (SELECT r.* FROM "scoop".run r WHERE r.root = of_root AND r.id = read.id OFFSET 0) r
    ),
    listed AS (
        SELECT n.*, row_number() OVER (ORDER BY CASE WHEN n.is_first THEN n.depth ELSE -n.depth END, n.ready_at, n.id) AS place
        FROM nearest n
        WHERE n.is_first OR NOT EXISTS (SELECT FROM nearest other WHERE other.is_first)
    )
    SELECT l.id, l.handler::text, l.rollback_failure, l.place FROM listed l WHERE l.place <= limit_to
$$;

CREATE FUNCTION scoop.failed_children(in_root uuid, of_run uuid) RETURNS jsonb
    LANGUAGE sql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
WITH failed AS MATERIALIZED (
    SELECT c.id, c.rollback_since, c.failure, own.rollback_failure, c.rollback_requested, own.has_failed_rollback,
           why.type, why.message,
           row_number() OVER (
               PARTITION BY own.has_failed_rollback, c.rollback_requested, why.type, why.message
               ORDER BY c.rollback_since, c.id) AS nth
    FROM "scoop".run c
    CROSS JOIN LATERAL (
        SELECT c.state = 'failed' AS has_failed_rollback, CASE WHEN c.state = 'failed' THEN c.rollback_failure END AS rollback_failure
        OFFSET 0
    ) own
    CROSS JOIN LATERAL (
        SELECT coalesce(own.rollback_failure, c.failure) ->> 'type' AS type,
               left(coalesce(own.rollback_failure, c.failure) ->> 'message', 160) AS message
        OFFSET 0
    ) why
    WHERE c.root = in_root AND c.parent = of_run AND c.state IN ('ended', 'failed')
),
listed AS MATERIALIZED (
    SELECT * FROM failed ORDER BY NOT has_failed_rollback, nth, rollback_since, id LIMIT 50
),
kinds AS MATERIALIZED (
    SELECT DISTINCT has_failed_rollback, rollback_requested, type, message FROM listed
),
more AS (
    SELECT has_failed_rollback, rollback_requested, kinds.type, kinds.message, count(*) AS count
    FROM failed LEFT JOIN kinds USING (has_failed_rollback, rollback_requested, type, message)
    WHERE failed.id NOT IN (SELECT id FROM listed)
    GROUP BY 1, 2, 3, 4
)
SELECT jsonb_build_object(
    'children', coalesce((
        SELECT jsonb_agg(
            jsonb_build_object(
                'rolled_back', failure, 'rollback_failed', rollback_failure, 'rollback_requested', rollback_requested)
            ORDER BY rollback_since, id)
        FROM listed), '[]'),
    'more', coalesce((SELECT jsonb_agg(to_jsonb(more) ORDER BY more.count DESC) FROM more), '[]'))
$$;

CREATE FUNCTION scoop.has_to_give_up(giving_up boolean, give_up_at timestamp with time zone, at timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((giving_up OR (give_up_at <= at)) IS TRUE);

CREATE FUNCTION scoop.held_key(state scoop.run_state, limit_key character varying, parked_since timestamp with time zone) RETURNS character varying
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE state WHEN 'ended'::scoop.run_state THEN NULL::character varying WHEN 'ready'::scoop.run_state THEN CASE WHEN (parked_since IS NULL) THEN limit_key ELSE NULL::character varying END ELSE limit_key END;

CREATE FUNCTION scoop.is_below_paused(of_root uuid, of_lineage uuid[]) RETURNS boolean
    LANGUAGE sql STABLE COST 1
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM unnest(of_lineage[:cardinality(of_lineage) - 1]) AS above (id)
        CROSS JOIN LATERAL (
            SELECT r.handler, r.topic FROM "scoop".run r
            WHERE r.root = of_root AND r.id = above.id AND r.state::text <> 'ended' OFFSET 0
        ) r
        WHERE "scoop".is_paused_for_new(r.handler, r.topic)
    )
$$;

CREATE FUNCTION scoop.is_deep(value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN jsonb_path_exists(value, 'strict $.**{100}?(@.type() == "array" || @.type() == "object")'::jsonpath);

CREATE FUNCTION scoop.is_gone(lock_key bigint, backend integer, backend_since timestamp with time zone, role oid) RETURNS boolean
    LANGUAGE sql
    RETURN CASE WHEN (EXISTS (SELECT FROM pg_stat_get_activity(is_gone.backend) a(datid, pid, usesysid, application_name, state, query, wait_event_type, wait_event, xact_start, query_start, backend_start, state_change, client_addr, client_hostname, client_port, backend_xid, backend_xmin, backend_type, ssl, sslversion, sslcipher, sslbits, ssl_client_dn, ssl_client_serial, ssl_issuer_dn, gss_auth, gss_princ, gss_enc, leader_pid, query_id) WHERE ((a.usesysid = is_gone.role) AND COALESCE((a.backend_start = is_gone.backend_since), true)))) THEN pg_try_advisory_xact_lock(lock_key) ELSE true END;

CREATE FUNCTION scoop.is_in_run(of_root uuid, run uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM "scoop".run r WHERE r.root = of_root AND r.id = run) THEN
        RAISE EXCEPTION 'run % of hierarchy % has begun, and has no row in run or in ended_run', run, of_root
            USING ERRCODE = 'data_exception';
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION scoop.is_new(began_at timestamp with time zone, rollback_requested boolean, giving_up boolean, root uuid, lineage uuid[]) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN ((began_at IS NULL) AND (NOT rollback_requested) AND (NOT giving_up) AND ((cardinality(lineage) <= 2) OR (NOT scoop.is_below_paused(root, lineage))));

CREATE TABLE scoop.handler (
    topic character varying(63) NOT NULL,
    handler character varying(255) NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retired_at timestamp with time zone,
    dropped_at timestamp with time zone,
    was text[],
    service character varying(255),
    build character varying(255),
    build_since timestamp with time zone,
    CONSTRAINT former_names_are_a_list CHECK (((array_ndims(was) = 1) AND (array_lower(was, 1) = 1) AND (array_position(was, NULL::text) IS NULL))),
    CONSTRAINT former_names_are_few CHECK (((cardinality(was) <= 1000) AND (octet_length(array_to_string(was, ''::text)) <= 262144))),
    CONSTRAINT handler_check CHECK (((dropped_at IS NULL) OR (retired_at IS NOT NULL))),
    CONSTRAINT handler_check1 CHECK ((num_nulls(build, build_since) = ANY (ARRAY[0, 2])))
);

CREATE TABLE scoop.pause (
    kind text NOT NULL,
    name character varying(255) NOT NULL,
    reason text,
    source text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone,
    new_runs_only boolean DEFAULT false NOT NULL,
    CONSTRAINT pause_check CHECK (((kind = 'everything'::text) = ((name)::text = ''::text))),
    CONSTRAINT pause_kind_check CHECK ((kind = ANY (ARRAY['everything'::text, 'topic'::text, 'handler'::text]))),
    CONSTRAINT texts_are_short CHECK (((octet_length(reason) <= 1000000) AND (octet_length(source) <= 1000000)))
);

CREATE VIEW scoop.paused WITH (security_invoker='true') AS
 SELECT p.kind,
    p.name,
    (p.name)::text AS covers,
    p.reason,
    p.source,
    p.since,
    p.until,
    p.new_runs_only
   FROM scoop.pause p
UNION
 SELECT p.kind,
    p.name,
    covered.name AS covers,
    p.reason,
    p.source,
    p.since,
    p.until,
    p.new_runs_only
   FROM ((scoop.pause p
     JOIN scoop.handler h ON (((p.kind = 'handler'::text) AND (h.was IS NOT NULL) AND ((p.name)::text = ANY (((h.handler)::text || h.was))))))
     CROSS JOIN LATERAL unnest(((h.handler)::text || h.was)) covered(name));

CREATE FUNCTION scoop.is_paused_for_new(of_handler text, of_topic text) RETURNS boolean
    LANGUAGE sql STABLE COST 1
    RETURN (EXISTS (SELECT FROM scoop.paused p WHERE (p.new_runs_only AND CASE p.kind WHEN 'everything'::text THEN true WHEN 'topic'::text THEN (p.covers = is_paused_for_new.of_topic) ELSE (p.covers = is_paused_for_new.of_handler) END)));

CREATE FUNCTION scoop.is_readable(value jsonb, bytes_max integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ((octet_length((value)::text) > bytes_max) OR scoop.is_deep(value)) THEN false ELSE (NOT COALESCE(jsonb_path_exists(value, 'strict $.**?(@.type() == "number" && (@ > 170000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 || @ < -170000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000))'::jsonpath), false)) END;

CREATE FUNCTION scoop.is_suspect(tries scoop.tries) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((tries).unknown_attempts >= 2) IS TRUE);

CREATE TABLE scoop.keep_time (
    topic character varying(63) NOT NULL,
    handler character varying(255) NOT NULL,
    committed double precision NOT NULL,
    rolled_back double precision NOT NULL,
    keys double precision DEFAULT 0 NOT NULL,
    is_archived boolean DEFAULT false NOT NULL,
    CONSTRAINT keep_time_committed_check CHECK ((committed >= (0)::double precision)),
    CONSTRAINT keep_time_keys_check CHECK ((keys >= (0)::double precision)),
    CONSTRAINT keep_time_rolled_back_check CHECK ((rolled_back >= (0)::double precision))
);

CREATE FUNCTION scoop.keep_of(of_topic text, OUT committed double precision, OUT rolled_back double precision, OUT keys double precision, OUT is_archived boolean) RETURNS record
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT max(t.committed) AS max,
     max(t.rolled_back) AS max,
     max(t.keys) AS max,
     bool_or(t.is_archived) AS bool_or
    FROM ( SELECT k.topic,
             k.handler,
             k.committed,
             k.rolled_back,
             k.keys,
             k.is_archived,
             (h.handler IS NOT NULL) AS is_active,
             bool_or((h.handler IS NOT NULL)) OVER () AS is_any_active
            FROM (scoop.keep_time k
              LEFT JOIN scoop.handler h ON ((((h.topic)::text = (k.topic)::text) AND ((h.handler)::text = (k.handler)::text) AND (h.retired_at IS NULL))))
           WHERE ((k.topic)::text = keep_of.of_topic)) t
   WHERE (t.is_active OR (NOT t.is_any_active));
END;

CREATE FUNCTION scoop.keep_unhandled(hierarchy uuid) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO "scoop".kept_hierarchy (root, until) VALUES (hierarchy, clock_timestamp() + interval '1 hour')
    ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO NOTHING;
END $$;

CREATE FUNCTION scoop.kept_since(seconds double precision) RETURNS timestamp with time zone
    LANGUAGE sql
    RETURN (clock_timestamp() - (LEAST(GREATEST(seconds, (3600)::double precision), ('32000000000'::numeric)::double precision) * '00:00:01'::interval));

CREATE FUNCTION scoop.launch(messages jsonb, OUT launched bigint, OUT handlers text[], OUT refused text, OUT refused_type text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    taken uuid;
BEGIN
    SELECT a.root INTO taken
    FROM jsonb_to_recordset(messages) AS a (id uuid, root uuid)
    WHERE (SELECT count(*) FROM "scoop".message known WHERE known.id = a.id) = 0
      AND (
          SELECT count(*) FROM "scoop".message_event e
          WHERE "scoop".run_id(e.cooperation_lineage) = a.root
      ) + (SELECT count(*) FROM "scoop".run r WHERE r.root = a.root) > 0
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
        WHERE jsonb_typeof(a.context) <> 'object' OR NOT "scoop".is_readable(given.value, given.bytes_max)
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
          AND (SELECT count(*) FROM "scoop".handler h WHERE h.topic = a.topic AND h.retired_at IS NULL) = 0
          AND (SELECT count(*) FROM "scoop".message known WHERE known.id = a.id) = 0
        LIMIT 1
    ),
    accepted AS MATERIALIZED (
        SELECT * FROM asked WHERE NOT EXISTS (SELECT FROM refusal)
    ),
    published AS (
        INSERT INTO "scoop".message (id, topic, payload)
        SELECT a.id, a.topic, coalesce(a.payload, 'null') FROM accepted a
        ON CONFLICT (id) DO NOTHING
        RETURNING id
    ),
    recorded AS (
        INSERT INTO "scoop".message_event (message_id, type, cooperation_lineage, context)
        SELECT a.id, 'EMITTED', ARRAY[a.root], nullif(a.context, '{}')
        FROM accepted a JOIN published USING (id)
        RETURNING message_id, created_at, cooperation_lineage[1] AS root
    ),
    delivered AS (
        INSERT INTO "scoop".run
            (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context, give_up_at)
        SELECT d.root, d.run, ARRAY[d.root, d.run], d.id, d.topic, d.handler,
               -- a run that has to give up before it is due does so in time; not in the past: claims may have gone on from there
               greatest(least(coalesce(d.due, r.created_at), d.give_up_at), r.created_at), r.created_at, nullif(d.context, '{}'), d.give_up_at
        FROM (
            SELECT a.*, h.handler, "scoop".gen_uuid_v7() AS run,
                   (SELECT min(deadline) FROM unnest(a.deadlines) deadline) AS give_up_at
            FROM accepted a
            JOIN "scoop".handler h ON h.topic = a.topic AND h.retired_at IS NULL
        ) d
        JOIN recorded r ON r.message_id = d.id
        RETURNING handler, message_id
    )
    SELECT (SELECT count(*) FROM published),
           ARRAY(
               SELECT DISTINCT d.handler::text FROM delivered d
               UNION ALL
               SELECT kept FROM recorded r CROSS JOIN LATERAL "scoop".keep_unhandled(r.root) AS kept
               WHERE NOT EXISTS (SELECT FROM delivered d WHERE d.message_id = r.message_id)),
           (SELECT r.topic FROM refusal r), (SELECT r.required FROM refusal r)
    INTO launched, handlers, refused, refused_type;
END $$;

CREATE TABLE scoop.kept_hierarchy (
    root uuid NOT NULL,
    until timestamp with time zone NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    error text
);

CREATE FUNCTION scoop.left_to_archive(hierarchy uuid) RETURNS boolean
    LANGUAGE sql
    BEGIN ATOMIC
 DELETE FROM scoop.kept_hierarchy k
   WHERE ((k.root = left_to_archive.hierarchy) AND (EXISTS ( SELECT
            FROM scoop.ended_run r
           WHERE ((r.root = left_to_archive.hierarchy) AND (cardinality(r.lineage) = 2)))));
 UPDATE scoop.ended_run r SET put_off = false
   WHERE ((r.root = left_to_archive.hierarchy) AND (cardinality(r.lineage) = 2) AND r.put_off);
 SELECT (EXISTS ( SELECT
            FROM scoop.ended_run r
           WHERE ((r.root = left_to_archive.hierarchy) AND (cardinality(r.lineage) = 2)))) AS "exists";
END;

CREATE FUNCTION scoop.pauses_of(of_handler text, of_topic text, of_new boolean) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN (SELECT jsonb_agg(jsonb_build_object('kind', p.kind, 'name', p.name, 'reason', "left"(p.reason, 1000), 'source', "left"(p.source, 1000), 'since', ((EXTRACT(epoch FROM GREATEST('0001-01-01 00:00:00+00'::timestamp with time zone, LEAST('9999-12-31 00:00:00+00'::timestamp with time zone, p.since))) * (1000000)::numeric))::bigint, 'until', CASE WHEN (p.until IS NOT NULL) THEN ((EXTRACT(epoch FROM GREATEST('0001-01-01 00:00:00+00'::timestamp with time zone, LEAST('9999-12-31 00:00:00+00'::timestamp with time zone, p.until))) * (1000000)::numeric))::bigint ELSE NULL::bigint END, 'new_runs_only', p.new_runs_only) ORDER BY p.since, p.kind, p.name) AS jsonb_agg FROM scoop.paused p WHERE ((pauses_of.of_new OR (NOT p.new_runs_only)) AND CASE p.kind WHEN 'everything'::text THEN true WHEN 'topic'::text THEN (p.covers = pauses_of.of_topic) ELSE (p.covers = pauses_of.of_handler) END));

CREATE FUNCTION scoop.phase(r scoop.run) RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN ((r).state = 'failed'::scoop.run_state) THEN 'rollback failed'::text WHEN ((r).state <> 'ready'::scoop.run_state) THEN ((r).state)::text WHEN (((r).tries.attempts > 0) OR ((r).tries.retries > 0)) THEN 'retrying'::text WHEN (((r).epoch = (r).unclaimed_epoch) AND (NOT (r).rollback_requested)) THEN 'pending'::text WHEN (((r).awaited.signal IS NOT NULL) AND ((r).ready_at > statement_timestamp())) THEN 'awaiting signal'::text WHEN (((r).awaited.children IS NOT NULL) AND ((r).ready_at > statement_timestamp())) THEN 'waiting'::text WHEN ((r).parked_since IS NOT NULL) THEN 'ready'::text WHEN (((r).epoch > (r).unclaimed_epoch) AND ((r).ready_at > statement_timestamp())) THEN 'sleeping'::text ELSE 'ready'::text END;

CREATE FUNCTION scoop.phase_since(r scoop.run) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    RETURN CASE WHEN (((r).state = 'ready'::scoop.run_state) AND ((r).parked_since IS NOT NULL)) THEN GREATEST((r).parked_since, (r).last_event_at) WHEN (((r).state = ANY (ARRAY['ready'::scoop.run_state, 'stuck'::scoop.run_state])) AND ((r).ready_at <= statement_timestamp())) THEN GREATEST((r).ready_at, (r).last_event_at) ELSE (r).last_event_at END;

CREATE FUNCTION scoop.priority_of(context jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE (context ->> ('scoop'::text || '.priority'::text)) WHEN 'high'::text THEN 1 WHEN 'low'::text THEN '-1'::integer ELSE 0 END;

CREATE FUNCTION scoop.prune(hierarchy uuid, keep_committed double precision, keep_rolled_back double precision, is_by_topic boolean, is_dry_run boolean, OUT verdict text, OUT message_count bigint, OUT event_count bigint, OUT look_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
    FROM "scoop".message_event e
    WHERE "scoop".run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED';
    IF root_messages IS NULL AND NOT EXISTS (SELECT FROM "scoop".ended_run r WHERE r.root = hierarchy) THEN
        verdict := 'absent';
        RETURN;
    END IF;
    age := clock_timestamp() - coalesce(launched_at, clock_timestamp());
    look_at := clock_timestamp() + greatest(interval '1 hour', age / 8);
    SELECT CASE WHEN bool_and(r.state = 'failed') THEN 'failed' ELSE 'unfinished' END INTO verdict
    FROM "scoop".run r WHERE r.root = hierarchy HAVING count(*) > 0;
    IF verdict IS NOT NULL THEN
        RETURN;
    END IF;
    IF NOT is_dry_run THEN
        -- From here on nothing can add a run: neither a request to roll back nor a redelivery.
        IF NOT pg_try_advisory_xact_lock(hashtextextended(hierarchy::text, 0))
            OR (SELECT count(*) FROM (
                    SELECT m.id FROM "scoop".message m WHERE m.id = ANY (root_messages) FOR UPDATE SKIP LOCKED) locked
               ) < cardinality(root_messages)
        THEN
            verdict := 'busy';
            look_at := clock_timestamp() + interval '1 minute';
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM "scoop".run r WHERE r.root = hierarchy) THEN
            verdict := 'unfinished';
            RETURN;
        END IF;
    END IF;

    SELECT hierarchy || array_agg(r.id), max(r.ended_at),
           bool_or(r.outcome <> 'committed') FILTER (WHERE cardinality(r.lineage) = 2)
    INTO parts, last_at, is_rolled_back
    FROM "scoop".ended_run r WHERE r.root = hierarchy;
    SELECT m.topic INTO root_topic FROM "scoop".message m WHERE m.id = root_messages[1];
    -- A cancellation or a relaunch is a sign of life, too.
    last_at := greatest(
        coalesce(last_at, launched_at),
        (SELECT max(r.requested_at) FROM "scoop".relaunch r WHERE r.of_root = hierarchy),
        (SELECT max(e.created_at) FROM "scoop".message_event e
         WHERE e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = hierarchy));
    -- without a run it is as one that was rolled back
    is_rolled_back := coalesce(is_rolled_back, true);
    SELECT * INTO keep FROM "scoop".keep_of(root_topic);
    seconds := CASE WHEN is_rolled_back THEN keep_rolled_back ELSE keep_committed END;
    IF is_by_topic THEN
        seconds := coalesce(CASE WHEN is_rolled_back THEN keep.rolled_back ELSE keep.committed END, seconds);
    END IF;
    IF last_at >= "scoop".kept_since(seconds) THEN
        verdict := 'recent';
        -- a shorter time may count from the next start of a program on
        look_at := least(last_at + (clock_timestamp() - "scoop".kept_since(seconds)),
                         clock_timestamp() + greatest(interval '1 day', age / 8));
        RETURN;
    END IF;

    SELECT m.payload ->> 'hierarchy' INTO about
    FROM "scoop".message m
    WHERE m.id = ANY (root_messages) AND starts_with(m.topic, prefix)
      AND m.payload ->> 'hierarchy' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    LIMIT 1;
    IF EXISTS (
            SELECT FROM unnest(parts) p (id)
            CROSS JOIN LATERAL (
                SELECT FROM "scoop".join_member j WHERE j.run = p.id AND j.joined IS NULL AND j.refused IS NULL OFFSET 0
            ) waiting)
        OR EXISTS (SELECT FROM "scoop".join_member j WHERE j.joined = hierarchy)
        OR about IS NOT NULL AND EXISTS (SELECT FROM "scoop".run r WHERE r.root = about::uuid)
    THEN
        verdict := 'needed';
        RETURN;
    END IF;

    SELECT array_agg(DISTINCT own.message_id), count(own.is_event) INTO messages, event_count
    FROM (
        SELECT CASE WHEN e.type = 'EMITTED' THEN e.message_id END AS message_id, true AS is_event
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (
            SELECT e.type, e.message_id FROM "scoop".message_event e
            WHERE "scoop".run_id(e.cooperation_lineage) = p.id
            OFFSET 0
        ) e
      UNION ALL
        SELECT x.message_id, NULL
        FROM unnest(parts) p (id)
        CROSS JOIN LATERAL (SELECT x.message_id FROM "scoop".execution x WHERE x.run = p.id OFFSET 0) x
    ) own;
    messages := array_remove(messages, NULL);
    -- a cancellation may hold the row of any message
    IF NOT is_dry_run AND (
            SELECT count(*) FROM (
                SELECT m.id FROM "scoop".message m WHERE m.id = ANY (messages) FOR UPDATE SKIP LOCKED) locked
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
        FROM "scoop".message m
        WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
          AND (SELECT count(*) FROM "scoop".entity_event v WHERE v.message_id = m.id) = 0;
        RETURN;
    END IF;
    -- the rows that archive_rows.sql reads
    DELETE FROM "scoop".message_event e WHERE "scoop".run_id(e.cooperation_lineage) = ANY (parts);
    DELETE FROM "scoop".return_value v WHERE "scoop".run_id(v.cooperation_lineage) = ANY (parts);
    DELETE FROM "scoop".ended_run r WHERE r.root = hierarchy;
    DELETE FROM "scoop".execution x WHERE x.run = ANY (parts);
    DELETE FROM "scoop".begun_step b WHERE b.run = ANY (parts);
    DELETE FROM "scoop".intervention i WHERE i.root = hierarchy;
    DELETE FROM "scoop".join_member j WHERE j.run = ANY (parts);
    DELETE FROM "scoop".relaunch r WHERE r.of_root = hierarchy;
    DELETE FROM "scoop".redelivery d WHERE d.message_id = ANY (messages);
    DELETE FROM "scoop".kept_hierarchy k WHERE k.root = hierarchy;
    DELETE FROM "scoop".found_by f WHERE f.found = ANY (hierarchy || messages);
    INSERT INTO "scoop".kept_key (message_id, until)
    SELECT k.id, keys_until FROM unnest(kept_keys) k (id)
    ON CONFLICT ON CONSTRAINT kept_key_pkey DO UPDATE SET until = excluded.until;
    UPDATE "scoop".message m SET payload = 'null' WHERE m.id = ANY (kept_keys);
    DELETE FROM "scoop".message m
    WHERE m.id = ANY (messages) AND (m.id = ANY (kept_keys)) IS NOT TRUE
      AND (SELECT count(*) FROM "scoop".entity_event v WHERE v.message_id = m.id) = 0;
    GET DIAGNOSTICS message_count = ROW_COUNT;
END $_$;

CREATE FUNCTION scoop.prune_keys(limit_to bigint, is_dry_run boolean) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    over uuid[];
BEGIN
    IF is_dry_run THEN
        RETURN (SELECT count(*) FROM "scoop".kept_key k WHERE k.until < clock_timestamp());
    END IF;
    WITH deleted AS (
        DELETE FROM "scoop".kept_key k
        WHERE k.message_id = ANY (ARRAY(
            SELECT o.message_id FROM "scoop".kept_key o
            WHERE o.until < clock_timestamp()
            ORDER BY o.until
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED))
        RETURNING k.message_id
    )
    SELECT array_agg(d.message_id) INTO over FROM deleted d;
    DELETE FROM "scoop".message m WHERE m.id = ANY (over);
    RETURN coalesce(cardinality(over), 0);
END $$;

CREATE FUNCTION scoop.prune_signals(older_than interval, limit_to bigint, is_dry_run boolean) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    before CONSTANT timestamptz := clock_timestamp() - greatest(older_than, interval '1 hour');
    pruned bigint;
BEGIN
    IF is_dry_run THEN
        SELECT count(*) INTO pruned
        FROM "scoop".signal s WHERE coalesce(s.delivered_at, s.kept_until) < before;
    ELSE
        DELETE FROM "scoop".signal s
        WHERE s.id = ANY (ARRAY(
            SELECT o.id FROM "scoop".signal o
            WHERE coalesce(o.delivered_at, o.kept_until) < before
            ORDER BY coalesce(o.delivered_at, o.kept_until)
            LIMIT limit_to
            FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS pruned = ROW_COUNT;
    END IF;
    RETURN pruned;
END $$;

CREATE FUNCTION scoop.queue_time(ready_at timestamp with time zone, priority integer) RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (GREATEST('0001-01-01 00:00:00+00'::timestamp with time zone, LEAST('9999-12-31 00:00:00+00'::timestamp with time zone, ready_at)) - ((priority)::double precision * '00:05:00'::interval));

CREATE FUNCTION scoop.rare_kind(state scoop.run_state, tries scoop.tries, context jsonb, limit_key character varying, parked_since timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE state WHEN 'ready'::scoop.run_state THEN CASE WHEN scoop.is_suspect(tries) THEN 'suspect'::text WHEN (context ? ('scoop'::text || '.priority'::text)) THEN 'prioritized'::text WHEN (scoop.held_key(state, limit_key, parked_since) IS NOT NULL) THEN 'keyed'::text ELSE NULL::text END WHEN 'stuck'::scoop.run_state THEN 'stuck'::text WHEN 'failed'::scoop.run_state THEN 'failed'::text ELSE NULL::text END;

CREATE FUNCTION scoop.record_found_by(messages uuid[], numbers smallint[], names text[], "values" jsonb[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO "scoop".found_by (found, name, value, number, root, launched_at)
    SELECT CASE WHEN cardinality(e.cooperation_lineage) = 1 THEN e.cooperation_lineage[1] ELSE a.message END,
           a.name, a.value, a.number, e.cooperation_lineage[1], e.created_at
    FROM unnest(messages, numbers, names, "values") AS a (message, number, name, value)
    CROSS JOIN LATERAL (
        SELECT m.id FROM "scoop".message m WHERE m.id = a.message AND m.created_at = CURRENT_TIMESTAMP OFFSET 0
    ) launched
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.created_at FROM "scoop".message_event e
        WHERE e.message_id = launched.id AND e.type = 'EMITTED'
        OFFSET 0
    ) e
    ON CONFLICT ON CONSTRAINT found_by_pkey DO NOTHING;
END $$;

CREATE FUNCTION scoop.relaunch(hierarchy uuid, new_root uuid, new_payload jsonb, left_out_keys text[], even_if_committed boolean, again boolean, note text, source text, is_dry_run boolean, OUT answer text, OUT relaunched uuid, OUT handlers text[]) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first record;
BEGIN
    SELECT m.id, m.topic, m.payload, e.context INTO first
    FROM "scoop".message_event e
    JOIN "scoop".message m ON m.id = e.message_id
    WHERE "scoop".run_id(e.cooperation_lineage) = hierarchy AND e.type::text = 'EMITTED'
    LIMIT 1;
    IF NOT FOUND THEN
        answer := 'absent';
        RETURN;
    END IF;
    IF NOT is_dry_run THEN
        -- Waits for a redelivery of the message, which sees a relaunch that is committed.
        PERFORM FROM "scoop".message m WHERE m.id = first.id FOR KEY SHARE;
    END IF;
    -- whether one of its runs has committed is unknown if the row is gone
    PERFORM FROM "scoop".message_event seen
    LEFT JOIN "scoop".ended_run r ON r.root = hierarchy AND r.id = "scoop".run_id(seen.cooperation_lineage)
    WHERE seen.type = 'SEEN' AND seen.message_id = first.id
      AND CASE WHEN r.id IS NULL THEN NOT "scoop".is_in_run(hierarchy, "scoop".run_id(seen.cooperation_lineage)) END;
    SELECT r.root INTO relaunched
    FROM "scoop".relaunch r
    -- an attempt without an answer may have been made
    WHERE r.of_root = hierarchy AND (NOT again OR r.root = new_root)
    ORDER BY r.requested_at, r.root
    LIMIT 1;
    answer := CASE
        WHEN relaunched = new_root THEN 'accepted'
        WHEN relaunched IS NOT NULL THEN 'relaunched before'
        WHEN EXISTS (SELECT FROM "scoop".run r WHERE r.root = hierarchy AND r.state <> 'failed') THEN 'still running'
        WHEN NOT even_if_committed AND EXISTS (
                SELECT FROM "scoop".ended_run r
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
    SELECT l.handlers INTO handlers FROM "scoop".launch(jsonb_build_array(jsonb_build_object(
        'id', "scoop".gen_uuid_v7(), 'root', new_root, 'topic', first.topic,
        'payload', coalesce(new_payload, first.payload), 'context', coalesce(first.context, '{}') - left_out_keys))) l;
    INSERT INTO "scoop".relaunch (root, of_root, note, source) VALUES (new_root, hierarchy, note, source);
END $$;

CREATE FUNCTION scoop.retention_next(worker uuid, keep_committed double precision, keep_rolled_back double precision, max_count bigint, has_archive boolean, OUT roots uuid[], OUT is_more boolean, OUT behind double precision) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    is_more := false;
    behind := 0;
    -- The row is gone if the table was emptied. Otherwise the insert would wait for a settlement.
    IF NOT EXISTS (SELECT FROM "scoop".retention) THEN
        INSERT INTO "scoop".retention DEFAULT VALUES ON CONFLICT ON CONSTRAINT retention_pkey DO NOTHING;
    END IF;
    -- A settlement holds the lock, however long it takes.
    PERFORM FROM "scoop".retention r WHERE r.is_only FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A worker that died keeps others waiting for so long. No worker takes the turn for ten minutes: the clock was set back then.
    UPDATE "scoop".retention r SET taken_by = worker, taken_until = clock_timestamp() + interval '5 minutes'
    WHERE r.is_only
      AND (r.taken_by = worker
           OR (r.taken_until >= clock_timestamp() AND r.taken_until < clock_timestamp() + interval '10 minutes') IS NOT TRUE);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH RECURSIVE lane (topic, outcome) AS (
        (SELECT r.topic, r.outcome FROM "scoop".ended_run r
         WHERE cardinality(r.lineage) = 2 AND NOT r.put_off
         ORDER BY r.topic, r.outcome LIMIT 1)
      UNION ALL
        SELECT following.topic, following.outcome
        FROM lane
        CROSS JOIN LATERAL (
            SELECT r.topic, r.outcome FROM "scoop".ended_run r
            WHERE (r.topic, r.outcome) > (lane.topic, lane.outcome) AND cardinality(r.lineage) = 2 AND NOT r.put_off
            ORDER BY r.topic, r.outcome LIMIT 1
        ) following
    ),
    due (root, lag, is_undeletable) AS (
        SELECT k.root, clock_timestamp() - k.until, kind.is_undeletable
        FROM (VALUES (false), (true)) AS kind (is_undeletable)
        CROSS JOIN LATERAL (
            SELECT k.root, k.until FROM "scoop".kept_hierarchy k
            WHERE (k.failures > 0) = kind.is_undeletable AND k.until < clock_timestamp()
            ORDER BY k.until LIMIT max_count
        ) k
      UNION ALL
        SELECT r.root, times.before - greatest(r.ended_at, '0001-01-01 00:00+00'), false
        FROM lane
        CROSS JOIN LATERAL "scoop".keep_of(lane.topic) keep
        CROSS JOIN LATERAL (
            SELECT "scoop".kept_since(CASE WHEN lane.outcome = 'committed' THEN coalesce(keep.committed, keep_committed)
                                         ELSE coalesce(keep.rolled_back, keep_rolled_back) END) AS before
            OFFSET 0
        ) times
        CROSS JOIN LATERAL (
            SELECT r.root, r.ended_at FROM "scoop".ended_run r
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
        UPDATE "scoop".retention r SET taken_until = NULL WHERE r.is_only;
    END IF;
END $$;

CREATE FUNCTION scoop.retention_put_off(hierarchy uuid, why text, retry_after double precision) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM "scoop".put_off(
        hierarchy,
        clock_timestamp() + retry_after * interval '1 second' * power(2, greatest(0, least(5, (
            SELECT coalesce(max(k.failures), 0) FROM "scoop".kept_hierarchy k WHERE k.root = hierarchy)))),
        why, true);
    RETURN "scoop".root_topic(hierarchy);
END $$;

CREATE FUNCTION scoop.retention_settle(worker uuid, keep_committed double precision, keep_rolled_back double precision, roots uuid[], archived uuid[], is_last boolean, retry_after double precision) RETURNS TABLE(verdict text, message_count bigint, event_count bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    asked record;
    pruned record;
BEGIN
    PERFORM FROM "scoop".retention r WHERE r.is_only AND r.taken_by = worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR asked IN
        SELECT u.root,
               CASE WHEN archived IS NOT NULL THEN u.root = ANY (archived)
                    ELSE (SELECT k.is_archived IS NOT TRUE FROM "scoop".keep_of("scoop".root_topic(u.root)) k) END AS is_archived
        FROM unnest(roots) u (root) GROUP BY u.root ORDER BY u.root
    LOOP
        SELECT * INTO pruned FROM "scoop".prune(asked.root, keep_committed, keep_rolled_back, true, NOT asked.is_archived);
        IF pruned.verdict = 'deleted' AND NOT asked.is_archived THEN
            pruned.verdict := 'unarchived';
            pruned.message_count := 0;
            pruned.event_count := 0;
            IF archived IS NOT NULL THEN
                pruned.look_at := clock_timestamp() + retry_after * interval '1 second';
            END IF;
        END IF;
        IF pruned.verdict = 'absent' THEN
            DELETE FROM "scoop".kept_hierarchy k WHERE k.root = asked.root;
        ELSIF pruned.verdict = 'unarchived' AND archived IS NULL AND "scoop".left_to_archive(asked.root) THEN
            NULL;
        ELSIF pruned.verdict <> 'deleted' THEN
            PERFORM "scoop".put_off(asked.root, pruned.look_at, NULL, pruned.verdict = 'unarchived');
        END IF;
        verdict := pruned.verdict;
        message_count := pruned.message_count;
        event_count := pruned.event_count;
        RETURN NEXT;
    END LOOP;
    UPDATE "scoop".retention r SET taken_until = CASE WHEN NOT is_last THEN clock_timestamp() + interval '5 minutes' END
    WHERE r.is_only;
END $$;

CREATE TABLE scoop.message (
    id uuid DEFAULT scoop.gen_uuid_v7() NOT NULL,
    topic character varying(63) NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);

CREATE FUNCTION scoop.root_topic(hierarchy uuid) RETURNS text
    LANGUAGE sql STABLE
    RETURN (SELECT m.topic FROM (scoop.message_event e JOIN scoop.message m ON ((m.id = e.message_id))) WHERE ((scoop.run_id(e.cooperation_lineage) = root_topic.hierarchy) AND ((e.type)::text = 'EMITTED'::text)) LIMIT 1);

CREATE FUNCTION scoop.schema_version() RETURNS integer
    LANGUAGE sql IMMUTABLE
    RETURN 10;

CREATE FUNCTION scoop.send_failed(outcome text, run_root uuid, run uuid, saga text, of_message uuid, at timestamp with time zone, failed_in text, failure jsonb, rollback_failure jsonb) RETURNS text[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    prefix CONSTANT text := 'scoop' || '.failed';  -- in two parts: programs put the name of the schema before each dot
    of_event timestamptz := at;  -- the newest event of the run: claims of a stuck run raise its time
    topics text[];
    document jsonb;
    with_payload jsonb;
    ready_handlers text[];
BEGIN
    topics := ARRAY(
        SELECT DISTINCT h.topic FROM "scoop".handler h
        WHERE h.topic = ANY (ARRAY[
                prefix, prefix || '.' || outcome, prefix || ':' || saga, prefix || '.' || outcome || ':' || saga])
          AND h.retired_at IS NULL
    );
    IF topics = '{}' OR EXISTS (
        SELECT FROM "scoop".message_event e
        WHERE "scoop".run_id(e.cooperation_lineage) = run_root
          AND e.type::text = 'EMITTED'  -- not as a type: the planner would read all of `one_per_message`
          AND starts_with((SELECT m.topic FROM "scoop".message m WHERE m.id = e.message_id), prefix)
    ) THEN
        RETURN '{}';
    END IF;
    IF outcome = 'stuck' THEN
        SELECT max(e.created_at) INTO of_event FROM "scoop".message_event e
        WHERE "scoop".run_id(e.cooperation_lineage) = run;
    END IF;
    SELECT jsonb_build_object(
            'outcome', outcome, 'saga', saga, 'hierarchy', run_root, 'run', run,
            'topic', m.topic, 'at', at, 'failure', failure, 'rollback_failure', nullif(rollback_failure, 'null'),
            -- Constant types: with any other the planner cannot use the partial index.
            'step', coalesce(failed_in, (
                SELECT e.step FROM "scoop".message_event e
                WHERE e.message_id = of_message AND e.coroutine_name = saga AND e.type = 'ROLLING_BACK'))),
        jsonb_build_object('payload', coalesce((
            SELECT newest.payload
            FROM "scoop".execution x
            JOIN "scoop".message newest ON newest.id = x.message_id
            WHERE x.run = send_failed.run
            ORDER BY x.number DESC
            LIMIT 1
        ), m.payload))
    INTO document, with_payload
    FROM "scoop".message m WHERE m.id = of_message;
    with_payload := document || with_payload;
    IF "scoop".is_readable(with_payload, 1048576) THEN
        document := with_payload;
    ELSIF NOT "scoop".is_readable(document, 1048576) THEN
        -- a value of an error may be too deep: it is among the causes
        document := document || jsonb_build_object(
            'failure', failure - 'causes', 'rollback_failure', rollback_failure - 'causes');
    END IF;
    SELECT l.handlers INTO ready_handlers FROM "scoop".launch((
        SELECT jsonb_agg(jsonb_build_object(
            'id', encode(substring(sha256(convert_to(concat_ws(' ', topic, outcome, run, extract(epoch FROM of_event)), 'UTF8'))
                         FROM 1 FOR 16), 'hex'),
            'root', "scoop".gen_uuid_v7(), 'topic', topic, 'payload', document, 'context', '{}'::jsonb))
        FROM unnest(topics) AS topic
    )) l;
    RETURN ready_handlers;
END $$;

CREATE FUNCTION scoop.send_signal(id uuid, name text, key text, payload jsonb, seconds_kept double precision, traceparent text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    -- as `refused_key`
    IF (octet_length(key) BETWEEN 1 AND 255 AND octet_length(name) BETWEEN 1 AND 255) IS NOT TRUE THEN
        RAISE EXCEPTION 'the name or the key of a signal does not have 1 to 255 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT "scoop".is_readable(payload, 16777216) THEN
        RAISE EXCEPTION 'a signal cannot be read by programs: its payload is larger than 16 MiB, has a number beyond 1.7e308, or '
            'is nested deeper than 100' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (seconds_kept BETWEEN 0 AND 1e11) IS NOT TRUE THEN
        RAISE EXCEPTION 'a signal cannot be kept for % seconds', seconds_kept USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO "scoop".signal (id, name, key, payload, kept_until, traceparent)
    VALUES (id, name, key, coalesce(payload, 'null'),
            least(clock_timestamp() + seconds_kept * interval '1 second', '9999-12-31 00:00+00'),
            CASE WHEN traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN traceparent END)
    ON CONFLICT ON CONSTRAINT signal_pkey DO NOTHING;
    RETURN FOUND;
END $_$;

CREATE FUNCTION scoop.settle(settlement jsonb, worker text, claim text) RETURNS TABLE(id uuid, epoch bigint, state text, last_event_at timestamp with time zone, overdue boolean, ready_handlers text[])
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    s record;
    locked_run "scoop".run;
    new_context jsonb;    -- the context of the run from now on
    in_rollback boolean;  -- it belongs to a rollback from now on
    turned timestamptz;   -- the time of its ROLLING_BACK, if it is one of these events
    due timestamptz;      -- its deadline from now on
    wakes_at timestamptz; -- when its wait ends, or it gives up
    has_children boolean := false;
    is_undecided boolean; -- a strategy has to decide whom it waits for
    rollback_handlers text[];
    last_event timestamptz;
BEGIN
    IF claim IS NOT NULL
        AND (current_setting('scoop_run.claim', true) IS DISTINCT FROM claim OR pg_advisory_unlock_all() IS NULL) THEN
        RETURN;
    END IF;
    SELECT * INTO s FROM jsonb_to_record(settlement) AS s (
        root uuid, id uuid, epoch bigint, ends text,
        step varchar, jump varchar, definition int, iteration int, handler_iteration int, suspensions int,
        completions jsonb, outputs jsonb, rolling_back boolean, begins_rollback boolean, failure jsonb,
        rollback_failure jsonb, forgets text, event_count int, events jsonb, emissions jsonb, rollback_requests jsonb,
        rollback_cause jsonb, return_values jsonb, replied boolean, context jsonb, deadlines timestamptz[],
        wait jsonb, signals jsonb, as_new jsonb, may_give_up boolean, stored boolean, failed text
    );
    SELECT r.* INTO locked_run FROM "scoop".run r
    WHERE r.root = s.root AND r.id = s.id AND r.epoch = s.epoch AND r.state = 'running'
    FOR UPDATE;
    IF NOT FOUND OR s.may_give_up
        AND "scoop".has_to_give_up(locked_run.giving_up, locked_run.give_up_at, clock_timestamp()) THEN
        RETURN;
    END IF;

    id := locked_run.id;
    epoch := locked_run.epoch;
    last_event := greatest(clock_timestamp(), locked_run.last_event_at + interval '1 microsecond')
        + s.event_count * interval '1 microsecond';
    new_context := CASE WHEN s.context IS NULL THEN locked_run.context ELSE nullif(s.context, '{}') END;
    turned := CASE WHEN s.begins_rollback THEN clock_timestamp() END;
    in_rollback := s.begins_rollback OR locked_run.rollback_since IS NOT NULL;
    is_undecided := (s.wait ? 'messages') IS TRUE;
    last_event_at := last_event;
    ready_handlers := '{}';

    -- Launched messages, and a run for each handler that is registered at this moment.
    IF s.emissions IS NOT NULL THEN
        -- large messages are stored ahead: see message_store.sql
        IF s.stored IS NOT TRUE THEN
            INSERT INTO "scoop".message (id, topic, payload)
            SELECT e.id, e.topic, coalesce(e.payload, 'null')
            FROM jsonb_to_recordset(s.emissions) AS e (id uuid, topic varchar, payload jsonb);
        END IF;

        WITH delivered AS (
            INSERT INTO "scoop".run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
                 context, rollback_since, give_up_at)
            SELECT coalesce(e.detached_root, locked_run.root),
                   h.run,
                   CASE WHEN e.detached_root IS NULL THEN locked_run.id END,
                   CASE WHEN e.detached_root IS NULL THEN locked_run.lineage ELSE ARRAY[e.detached_root] END || h.run,
                   e.id, h.topic, h.handler,
                   -- a deadline before the due time wins; not in the past: claims may have gone on from there
                   greatest(least(coalesce(e.due, clock_timestamp() + e.at * interval '1 microsecond'), give_up.at),
                            clock_timestamp()),
                   last_event,
                   CASE WHEN e.context IS NULL THEN new_context ELSE nullif(e.context, '{}') END,
                   CASE WHEN in_rollback AND e.detached_root IS NULL THEN clock_timestamp() END,
                   give_up.at
            FROM jsonb_to_recordset(s.emissions) AS e (
                id uuid, topic varchar, detached_root uuid, at int, context jsonb, due timestamptz,
                deadlines timestamptz[])
            CROSS JOIN LATERAL (
                SELECT h.topic, h.handler, "scoop".gen_uuid_v7() AS run
                FROM "scoop".handler h WHERE h.topic = e.topic AND h.retired_at IS NULL OFFSET 0
            ) h
            CROSS JOIN LATERAL (
                SELECT min(deadline) AS at FROM unnest(e.deadlines) deadline
                WHERE NOT in_rollback OR e.detached_root IS NOT NULL OR deadline > clock_timestamp()
            ) give_up
            RETURNING handler, parent
        )
        SELECT coalesce(array_agg(DISTINCT handler::text), '{}'), coalesce(bool_or(parent IS NOT NULL), false)
        INTO ready_handlers, has_children
        FROM delivered;
        PERFORM FROM jsonb_to_recordset(s.emissions) AS e (detached_root uuid)
        CROSS JOIN LATERAL "scoop".keep_unhandled(e.detached_root)
        WHERE e.detached_root IS NOT NULL
          AND (SELECT count(*) FROM "scoop".run r WHERE r.root = e.detached_root) = 0;
    END IF;

    -- Runs that have to be undone: those that handled the message and have committed. Their rows move back.
    IF s.rollback_requests IS NOT NULL THEN
        WITH undoable AS MATERIALIZED (
            SELECT ended.*, requested.at
            FROM jsonb_to_recordset(s.rollback_requests) AS requested (message_id uuid, at int)
            CROSS JOIN LATERAL (
                SELECT "scoop".run_id(e.cooperation_lineage) AS id FROM "scoop".message_event e
                WHERE e.type = 'SEEN' AND e.message_id = requested.message_id OFFSET 0
            ) seen
            -- by key, even if the table was empty when it was analysed
            CROSS JOIN LATERAL (
                SELECT e.ctid AS place, e.*
                FROM (SELECT) AS always
                LEFT JOIN "scoop".ended_run e ON e.root = locked_run.root AND e.id = seen.id
                WHERE CASE WHEN e.id IS NULL THEN NOT "scoop".is_in_run(locked_run.root, seen.id)
                           ELSE e.outcome = 'committed' END
                OFFSET 0
            ) ended
        ),
        unended AS (
            DELETE FROM "scoop".ended_run e WHERE e.ctid = ANY (ARRAY(SELECT u.place FROM undoable u))
        ),
        rollback_runs AS (
            INSERT INTO "scoop".run
                (root, id, parent, lineage, message_id, topic, handler, ready_at, last_event_at,
                 queued_at, began_at, rolling_back, rollback_requested, failure, rollback_since, epoch, unclaimed_epoch, context)
            SELECT u.root, u.id, locked_run.id, u.lineage, u.message_id, u.topic, u.handler,
                   clock_timestamp() + u.at * interval '1 microsecond',
                   last_event, u.queued_at, u.began_at,
                   true, true,
                   -- a repeated request has the recorded reason
                   coalesce(CASE WHEN locked_run.rollback_failure IS NOT NULL THEN (
                       SELECT e.exception FROM "scoop".message_event e
                       WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = u.message_id
                   ) END, s.rollback_cause),
                   clock_timestamp(),
                   -- higher than any forward epoch, to fence out old owners
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   (extract(epoch FROM last_event) * 1000000)::bigint,
                   -- its own last context, overlaid with the parent's current one
                   nullif(coalesce(u.context, '{}') || coalesce(new_context, '{}'), '{}')
            FROM undoable u
            RETURNING handler
        )
        SELECT array_agg(DISTINCT handler::text) INTO rollback_handlers FROM rollback_runs;
        has_children := has_children OR rollback_handlers IS NOT NULL;
        ready_handlers := ready_handlers || coalesce(rollback_handlers, '{}');
    END IF;

    IF s.deadlines IS NOT NULL THEN
        SELECT min(deadline) INTO due FROM unnest(s.deadlines) deadline
        WHERE (deadline > coalesce(turned, locked_run.rollback_since)) IS NOT FALSE;
    END IF;
    IF s.wait IS NOT NULL THEN
        -- not in the past: claims may have gone on from there
        -- a time that programs can read, where there is no limit
        wakes_at := greatest(
            least(coalesce((s.wait ->> 'until')::timestamptz, '9999-12-31 23:59:59.999999+00'), due),
            clock_timestamp());
    END IF;
    IF s.as_new IS NOT NULL THEN
        INSERT INTO "scoop".message (id, topic, payload)
        VALUES ((s.as_new ->> 'message')::uuid, locked_run.topic, coalesce(s.as_new -> 'payload', 'null'));
        INSERT INTO "scoop".execution (root, run, number, message_id, suspensions, began_at)
        VALUES (locked_run.root, locked_run.id, (s.as_new ->> 'number')::int, (s.as_new ->> 'message')::uuid,
                s.suspensions, last_event);
    END IF;
    IF s.ends <> 'failed' THEN
        INSERT INTO "scoop".ended_run
            (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context,
             queued_at, began_at, ended_at)
        VALUES (
            locked_run.root, locked_run.id, locked_run.parent, locked_run.lineage, locked_run.message_id, locked_run.topic,
            locked_run.handler,
            CASE WHEN s.rolling_back THEN 'rolled_back' ELSE 'committed' END::"scoop".run_outcome,
            s.failure, locked_run.rollback_failure, new_context, locked_run.queued_at, locked_run.began_at, last_event);
    END IF;
    -- the parent may have gone on without it since its claim
    IF s.ends = 'unnoted' OR s.ends = 'noted' AND locked_run.parent IS NULL THEN
        DELETE FROM "scoop".run r WHERE r.root = locked_run.root AND r.id = locked_run.id;
        state := 'ended';
        overdue := locked_run.give_up_at <= clock_timestamp();
    ELSIF s.ends = 'failed' THEN
        UPDATE "scoop".run r
        SET state = 'failed', owner = NULL, ready_at = last_event, epoch = r.epoch + 1,
            step = s.step, suspended = ROW(NULL, NULL, NULL, s.handler_iteration, NULL)::"scoop".suspended,
            completions = NULL, outputs = NULL, awaited = NULL, signalled_by = NULL,
            rolling_back = true, failure = s.failure, rollback_failure = s.rollback_failure, context = new_context,
            giving_up = false, give_up_at = NULL, rollback_since = coalesce(turned, r.rollback_since),
            last_event_at = last_event,
            newest_execution = NULL, tries = NULL, reason = NULL
        WHERE r.root = locked_run.root AND r.id = locked_run.id
        RETURNING r.state::text INTO state;
    ELSE
        UPDATE "scoop".run r
        SET state = CASE WHEN s.ends = 'noted' THEN 'ended' WHEN is_undecided THEN 'running' WHEN has_children THEN 'waiting'
                         WHEN wakes_at IS NOT NULL THEN 'ready' ELSE 'running'
                    END::"scoop".run_state,
            owner = CASE WHEN s.ends IS NULL AND (is_undecided OR NOT has_children AND wakes_at IS NULL) THEN r.owner END,
            ready_at = CASE WHEN is_undecided THEN r.ready_at ELSE coalesce(wakes_at, r.ready_at) END,
            awaited = CASE WHEN NOT is_undecided THEN "scoop".awaited_signal(s.wait) END,
            signalled_by = NULL,
            epoch = r.epoch + 1,
            step = s.step, suspended = ROW(
                s.jump, s.definition, s.iteration, s.handler_iteration, CASE WHEN is_undecided THEN s.wait END)::"scoop".suspended,
            suspensions = s.suspensions, completions = s.completions, outputs = s.outputs,
            rolling_back = s.rolling_back, failure = s.failure,
            context = new_context, replied = s.replied,
            giving_up = r.giving_up AND NOT s.begins_rollback,
            give_up_at = due,
            rollback_since = coalesce(turned, r.rollback_since),
            last_event_at = last_event,
            newest_execution = CASE WHEN s.as_new IS NOT NULL THEN
                            ROW((s.as_new ->> 'number')::int, last_event, (s.as_new ->> 'message')::uuid)::"scoop".newest_execution
                        WHEN NOT s.rolling_back THEN r.newest_execution END,
            -- a new execution may be of another definition
            reserved_for = CASE WHEN s.as_new IS NULL THEN r.reserved_for ELSE 0 END,
            tries = NULL, reason = NULL
        WHERE r.root = locked_run.root AND r.id = locked_run.id
        RETURNING r.state::text, r.give_up_at <= clock_timestamp() INTO state, overdue;
    END IF;
    overdue := overdue IS TRUE;

    -- A client may have requested the rollback of a part of the hierarchy before.
    IF s.rollback_requests IS NOT NULL THEN
        INSERT INTO "scoop".message_event
            (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, exception,
             context)
        SELECT e.message_id, 'ROLLBACK_EMITTED', locked_run.handler, worker, e.step, locked_run.lineage,
               last_event - e.until_last * interval '1 microsecond', s.rollback_cause, new_context
        FROM jsonb_to_recordset(s.events) AS e (until_last int, message_id uuid, type text, step varchar)
        WHERE e.type = 'ROLLBACK_EMITTED'
        ON CONFLICT (message_id, type) WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED') DO NOTHING;
    END IF;

    -- A microsecond apart and in order, since participants order events by this time.
    INSERT INTO "scoop".message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
         created_at, exception, next_step, child_failure_handler_iteration, jump, definition, wait, context)
    SELECT e.message_id, e.type::"scoop".message_event_type,
           CASE WHEN e.detached_root IS NULL THEN locked_run.handler END,
           CASE WHEN e.detached_root IS NULL THEN worker END,
           e.step,
           CASE WHEN e.detached_root IS NULL THEN locked_run.lineage ELSE ARRAY[e.detached_root] END,
           last_event - e.until_last * interval '1 microsecond',
           e.exception, e.next_step, e.handler_iteration, e.jump, e.definition, e.wait,
           CASE WHEN e.context IS NULL THEN new_context ELSE nullif(e.context, '{}') END
    FROM jsonb_to_recordset(s.events) AS e (
        until_last int, message_id uuid, type text, step varchar, next_step int,
        handler_iteration int, jump varchar, definition int, exception jsonb, detached_root uuid, context jsonb,
        wait jsonb)
    WHERE e.type <> 'ROLLBACK_EMITTED';

    -- Not if a run waits for it; nor of one without which its launcher has gone on, since it was cancelled then.
    IF s.failed IS NOT NULL AND locked_run.parent IS NULL
        AND (s.failed <> 'rolled_back' OR cardinality(locked_run.lineage) = 2 OR locked_run.rollback_requested
             OR s.failure ->> 'type' <> 'GaveUpException') THEN
        ready_handlers := ready_handlers || "scoop".send_failed(
            s.failed, locked_run.root, locked_run.id, locked_run.handler, locked_run.message_id, last_event,
            CASE WHEN s.ends = 'failed' THEN s.step END, s.failure, s.rollback_failure);
    END IF;

    IF s.return_values IS NOT NULL THEN
        INSERT INTO "scoop".return_value (cooperation_lineage, handler_name, variable_name, value)
        SELECT locked_run.lineage, locked_run.handler, returned.name, coalesce(returned.value, 'null')
        FROM jsonb_to_recordset(s.return_values) AS returned (name varchar, value jsonb);
    END IF;

    IF s.signals IS NOT NULL THEN
        INSERT INTO "scoop".signal (id, name, key, payload, kept_until, traceparent)
        SELECT sent.id, sent.name, sent.key, coalesce(sent.payload, 'null'),
               least(clock_timestamp() + make_interval(secs => sent.retention), '9999-12-31 00:00+00'), sent.traceparent
        FROM jsonb_to_recordset(s.signals) AS sent
            (id uuid, name varchar, key varchar, payload jsonb, retention float8, traceparent varchar);
    END IF;

    IF s.forgets IS NOT NULL THEN
        DELETE FROM "scoop".run child
        WHERE child.root = locked_run.root AND child.parent = locked_run.id AND child.state = 'ended';
    END IF;
    -- It goes on without the runs whose failed rollback it accepts: nobody waits for them any more.
    IF s.forgets = 'all' THEN
        UPDATE "scoop".run child SET parent = NULL
        WHERE child.root = locked_run.root AND child.parent = locked_run.id AND child.state = 'failed';
    END IF;
    RETURN NEXT;
END $$;

CREATE FUNCTION scoop.shown_bytes(failure jsonb) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (scoop.bytes_of(failure) > 262144) THEN (0)::bigint ELSE scoop.bytes_of(failure) END;

CREATE FUNCTION scoop.shown_failure(failure jsonb) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (failure IS NULL) THEN NULL::jsonb WHEN (scoop.shown_bytes(failure) = 0) THEN jsonb_build_object('type', 'TooLarge', 'source', 'unknown', 'message', (('the failure is too large to be read: '::text || pg_column_size(failure)) || ' bytes as it is stored'::text)) WHEN scoop.is_deep(failure) THEN '{"type": "TooDeep", "source": "unknown", "message": "the failure has too many levels to be read"}'::jsonb ELSE failure END;

CREATE FUNCTION scoop.stuck_failure(saga text, reason text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    RETURN jsonb_build_object('message', COALESCE(reason, 'stuck'::text), 'type', 'Stuck', 'source', saga, 'stackTrace', '[]'::jsonb, 'causes', '[]'::jsonb);

CREATE FUNCTION scoop.tried(tries scoop.tries, unknown_attempts integer, granted boolean, definition integer, again boolean) RETURNS scoop.tries
    LANGUAGE sql IMMUTABLE
    RETURN (SELECT ROW((CASE WHEN v.same THEN LEAST((tried.tries).attempts, 2000000000) ELSE 0 END + ((NOT tried.granted))::integer), (CASE WHEN v.same THEN LEAST((tried.tries).retries, 2000000000) ELSE 0 END + (tried.granted)::integer), tried.unknown_attempts, CASE WHEN (tried.definition IS NULL) THEN v.former ELSE (array_remove(v.former, tried.definition) || tried.definition) END)::scoop.tries AS "row" FROM (VALUES ((((tried.tries).attempts IS NOT NULL) AND ((tried.tries).retries IS NOT NULL) AND COALESCE(tried.again, ((tried.definition IS NULL) OR ((tried.tries).tried_under[cardinality((tried.tries).tried_under)] = tried.definition)))),CASE WHEN (array_ndims((tried.tries).tried_under) = 1) THEN (tried.tries).tried_under ELSE NULL::integer[] END)) v(same, former));

CREATE FUNCTION scoop.trim_ended_pauses() RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    DELETE FROM "scoop".ended_pause p
    WHERE p.ended_at < (SELECT newer.ended_at FROM "scoop".ended_pause newer ORDER BY newer.ended_at DESC OFFSET 999 LIMIT 1)
$$;

CREATE FUNCTION scoop.waiting_runs(names text[], at_most bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN (
        WITH RECURSIVE queue (handler, topic, lane) AS (
            SELECT first.handler, first.topic, first.reserved_for
            FROM unnest(names) AS own (name)
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM "scoop".run r
                WHERE r.state = 'ready' AND r.handler = own.name
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) first
            UNION ALL
            SELECT next.handler, next.topic, next.reserved_for
            FROM queue q
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM "scoop".run r
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
                     SELECT r.id FROM "scoop".run r
                     WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic
                       AND r.reserved_for = q.lane AND "scoop".priority_of(r.context) = level.priority
                       AND r.ready_at <= (SELECT clock_timestamp())
                     ORDER BY r.ready_at LIMIT at_most
                 ) due)
                UNION ALL
                -- the state as a text, and the order, choose the index of parked runs
                (SELECT r.id FROM "scoop".run r
                 WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = q.handler AND r.topic = q.topic
                   AND r.reserved_for = q.lane AND r.ready_at > (SELECT clock_timestamp())
                 ORDER BY r.limit_key LIMIT at_most)
            ) waiting
            LIMIT at_most
        ) waiting
    );
END $$;

CREATE FUNCTION scoop.wakes_at(ready_at timestamp with time zone, last_event_at timestamp with time zone, at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((ready_at > last_event_at) AND (ready_at > at)) THEN ready_at ELSE at END;

CREATE VIEW scoop.ready_queue WITH (security_invoker='true') AS
 WITH RECURSIVE queue(handler, topic, reserved_for) AS (
        ( SELECT r.handler,
            r.topic,
            r.reserved_for
           FROM scoop.run r
          WHERE (r.state = 'ready'::scoop.run_state)
          ORDER BY r.handler, r.topic, r.reserved_for
         LIMIT 1)
        UNION ALL
         SELECT next.handler,
            next.topic,
            next.reserved_for
           FROM (queue q_1
             CROSS JOIN LATERAL ( SELECT r.handler,
                    r.topic,
                    r.reserved_for
                   FROM scoop.run r
                  WHERE ((r.state = 'ready'::scoop.run_state) AND (ROW((r.handler)::text, (r.topic)::text, r.reserved_for) > ROW((q_1.handler)::text, (q_1.topic)::text, q_1.reserved_for)))
                  ORDER BY r.handler, r.topic, r.reserved_for
                 LIMIT 1) next)
        )
 SELECT q.handler,
    q.topic,
    q.reserved_for
   FROM queue q;

CREATE TABLE scoop.worker (
    id uuid NOT NULL,
    lock_key bigint NOT NULL,
    backend integer NOT NULL,
    backend_since timestamp with time zone,
    role oid NOT NULL,
    topics text[] NOT NULL,
    handlers text[] NOT NULL,
    definitions integer[] NOT NULL,
    started_at timestamp with time zone NOT NULL,
    topology bigint DEFAULT 0 NOT NULL,
    acknowledged bigint DEFAULT 0 NOT NULL,
    service character varying(255) DEFAULT ''::character varying NOT NULL,
    build character varying(255) DEFAULT ''::character varying NOT NULL,
    kept text[],
    CONSTRAINT kept_handlers_are_few CHECK (((cardinality(kept) <= 100000) AND (octet_length(array_to_string(kept, ''::text)) <= 16777216))),
    CONSTRAINT sagas_are_lists CHECK (((array_ndims(topics) = 1) AND (array_lower(topics, 1) = 1) AND (array_ndims(handlers) = 1) AND (array_lower(handlers, 1) = 1) AND (array_ndims(definitions) = 1) AND (array_lower(definitions, 1) = 1))),
    CONSTRAINT sagas_are_not_too_many CHECK (((cardinality(handlers) <= 100000) AND (octet_length(array_to_string(topics, ''::text)) <= 16777216) AND (octet_length(array_to_string(handlers, ''::text)) <= 16777216))),
    CONSTRAINT worker_check CHECK (((array_position(((topics || handlers) || kept), NULL::text) IS NULL) AND (array_position(definitions, NULL::integer) IS NULL))),
    CONSTRAINT worker_check1 CHECK (((cardinality(topics) = cardinality(handlers)) AND (cardinality(handlers) = cardinality(definitions))))
);

CREATE VIEW scoop.served_queue AS
 SELECT own.handler,
    own.topic,
    own.definition
   FROM (scoop.worker w
     CROSS JOIN LATERAL UNNEST(w.topics, w.handlers, w.definitions) own(topic, handler, definition));

CREATE VIEW scoop.abandoned_queue AS
 SELECT q.handler,
    q.topic,
    q.reserved_for
   FROM scoop.ready_queue q
  WHERE (
        CASE
            WHEN (q.reserved_for = 0) THEN (((q.handler)::text, (q.topic)::text) IN ( SELECT s.handler,
                s.topic
               FROM scoop.served_queue s))
            ELSE (((q.handler)::text, (q.topic)::text, q.reserved_for) IN ( SELECT s.handler,
                s.topic,
                s.definition
               FROM scoop.served_queue s))
        END IS NOT TRUE);

CREATE TABLE scoop.begun_step (
    root uuid NOT NULL,
    run uuid NOT NULL,
    instance integer NOT NULL,
    step character varying(255) NOT NULL,
    epoch bigint NOT NULL,
    begun_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE scoop.definition (
    id integer NOT NULL,
    handler character varying(255) NOT NULL,
    fingerprint uuid NOT NULL,
    steps jsonb NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE scoop.ended_pause (
    id uuid DEFAULT scoop.gen_uuid_v7() NOT NULL,
    kind text NOT NULL,
    name character varying(255) NOT NULL,
    reason text,
    source text NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_by text,
    ended_reason text,
    new_runs_only boolean DEFAULT false NOT NULL
);

CREATE TABLE scoop.entity (
    name character varying(255) NOT NULL COLLATE pg_catalog."C",
    key character varying(255) NOT NULL COLLATE pg_catalog."C",
    version bigint DEFAULT 0 NOT NULL,
    state jsonb,
    CONSTRAINT entity_version_check CHECK ((version >= 0))
)
WITH (fillfactor='50');

CREATE TABLE scoop.entity_event (
    name character varying(255) NOT NULL COLLATE pg_catalog."C",
    key character varying(255) NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    message_id uuid NOT NULL,
    run uuid NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT entity_event_version_check CHECK ((version >= 1))
);

CREATE TABLE scoop.execution (
    root uuid NOT NULL,
    run uuid NOT NULL,
    number integer NOT NULL,
    message_id uuid NOT NULL,
    suspensions integer NOT NULL,
    began_at timestamp with time zone NOT NULL,
    CONSTRAINT execution_number_check CHECK ((number > 0))
);

CREATE TABLE scoop.find_field (
    topic character varying(63) NOT NULL,
    name character varying(63) NOT NULL,
    kind text NOT NULL,
    number smallint NOT NULL,
    CONSTRAINT find_field_kind_check CHECK ((kind = ANY (ARRAY['text'::text, 'number'::text, 'time'::text])))
);

CREATE TABLE scoop.found_by (
    found uuid NOT NULL,
    name character varying(63) NOT NULL,
    value jsonb NOT NULL,
    number smallint NOT NULL,
    root uuid NOT NULL,
    launched_at timestamp with time zone NOT NULL,
    CONSTRAINT found_by_is_short CHECK ((((name)::text <> ''::text) AND (octet_length((name)::text) <= 63) AND ((number >= 0) AND (number <= 7)) AND
CASE jsonb_typeof(value)
    WHEN 'string'::text THEN (octet_length((value #>> '{}'::text[])) <= 256)
    WHEN 'number'::text THEN (pg_column_size(value) <= 256)
    ELSE false
END))
);

CREATE TABLE scoop.intervention (
    id uuid DEFAULT scoop.gen_uuid_v7() NOT NULL,
    root uuid NOT NULL,
    run uuid NOT NULL,
    handler character varying(255) NOT NULL,
    message_id uuid NOT NULL,
    step character varying(255),
    kind text NOT NULL,
    reruns_part boolean DEFAULT false NOT NULL,
    note text,
    source text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    CONSTRAINT intervention_kind_check CHECK ((kind = ANY (ARRAY['retry'::text, 'skip'::text, 'resolve'::text, 'signal'::text])))
);

CREATE TABLE scoop.join_member (
    run uuid NOT NULL,
    saga character varying(255) NOT NULL,
    key character varying(255) NOT NULL,
    topic character varying(63) NOT NULL,
    message_id uuid NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    joined uuid,
    refused text,
    traceparent character varying(55)
);

CREATE TABLE scoop.kept_key (
    message_id uuid NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE TABLE scoop.launches (
    saga character varying(255) NOT NULL,
    step character varying(255) NOT NULL,
    topic character varying(63) NOT NULL,
    declared boolean DEFAULT false NOT NULL,
    seen_at timestamp with time zone,
    CONSTRAINT launches_check CHECK ((declared OR (seen_at IS NOT NULL)))
);

CREATE TABLE scoop.limit_log (
    saga character varying(255) NOT NULL,
    number bigint NOT NULL,
    root uuid,
    run uuid,
    key character varying(255) NOT NULL,
    parked_since timestamp with time zone,
    ready_at timestamp with time zone,
    CONSTRAINT limit_log_check CHECK ((((root IS NULL) = (run IS NULL)) AND (num_nonnulls(run, parked_since, ready_at) = 1)))
);

CREATE TABLE scoop.run_limit (
    saga character varying(255) NOT NULL,
    handlers text[] NOT NULL,
    concurrency integer,
    concurrency_by_key boolean DEFAULT false NOT NULL,
    serial boolean DEFAULT false NOT NULL,
    rate integer,
    rate_period_ms bigint,
    rate_by_key boolean DEFAULT false NOT NULL,
    key_from character varying(255),
    queue integer,
    CONSTRAINT names_are_few CHECK (((cardinality(handlers) <= 1000) AND (octet_length(array_to_string(handlers, ''::text)) <= 262144))),
    CONSTRAINT run_limit_check CHECK (((rate IS NULL) = (rate_period_ms IS NULL))),
    CONSTRAINT run_limit_check1 CHECK ((num_nonnulls(concurrency, rate, queue) > 0)),
    CONSTRAINT run_limit_check2 CHECK (((key_from IS NOT NULL) = (concurrency_by_key OR rate_by_key))),
    CONSTRAINT run_limit_check3 CHECK (((NOT serial) OR concurrency_by_key)),
    CONSTRAINT run_limit_concurrency_check CHECK ((concurrency > 0)),
    CONSTRAINT run_limit_handlers_check CHECK (((array_ndims(handlers) = 1) AND (array_lower(handlers, 1) = 1) AND (array_position(handlers, NULL::text) IS NULL))),
    CONSTRAINT run_limit_queue_check CHECK ((queue > 0)),
    CONSTRAINT run_limit_rate_check CHECK ((rate > 0)),
    CONSTRAINT run_limit_rate_period_ms_check CHECK ((rate_period_ms > 0))
);

CREATE VIEW scoop.limited_topic WITH (security_invoker='true') AS
 SELECT DISTINCT first.topic,
    first.saga
   FROM ( SELECT DISTINCT ON (h.topic, h.handler) h.topic,
            l.saga
           FROM ((scoop.run_limit l
             CROSS JOIN LATERAL unnest(l.handlers) names(handler))
             JOIN scoop.handler h ON ((((h.handler)::text = names.handler) AND (h.retired_at IS NULL))))
          WHERE (((l.saga)::text >= ''::text) AND (l.queue > 0))
          ORDER BY h.topic, h.handler, l.saga) first;

CREATE VIEW scoop.listed_handler AS
 WITH RECURSIVE listed(state, handlers) AS (
         SELECT s.state,
            first.handlers
           FROM (unnest('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) s(state)
             CROSS JOIN LATERAL ( SELECT array_agg(DISTINCT r.handler ORDER BY r.handler) AS handlers
                   FROM ( SELECT r_1.handler
                           FROM scoop.run r_1
                          WHERE ((r_1.state <> 'ended'::scoop.run_state) AND (r_1.id >= '00000000-0000-0000-0000-000000000000'::uuid) AND (r_1.state = s.state))
                          ORDER BY r_1.handler
                         LIMIT 16) r) first)
        UNION ALL
         SELECT l_1.state,
            next.handlers
           FROM (listed l_1
             CROSS JOIN LATERAL ( SELECT array_agg(DISTINCT r.handler ORDER BY r.handler) AS handlers
                   FROM ( SELECT r_1.handler
                           FROM scoop.run r_1
                          WHERE ((r_1.state <> 'ended'::scoop.run_state) AND (r_1.id >= '00000000-0000-0000-0000-000000000000'::uuid) AND (r_1.state = l_1.state) AND ((r_1.handler)::text > (l_1.handlers[cardinality(l_1.handlers)])::text))
                          ORDER BY r_1.handler
                         LIMIT 16) r) next)
          WHERE (l_1.handlers IS NOT NULL)
        )
 SELECT l.state,
    h.handler
   FROM (listed l
     CROSS JOIN LATERAL unnest(l.handlers) h(handler));

CREATE TABLE scoop.migration (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

CREATE TABLE scoop.rate_window (
    saga character varying(255) NOT NULL,
    key character varying(255) NOT NULL,
    begun jsonb NOT NULL,
    has_parked boolean NOT NULL,
    opens_at timestamp with time zone NOT NULL,
    idle_at timestamp with time zone NOT NULL
);

CREATE VIEW scoop.reached_limit WITH (security_invoker='true') AS
 SELECT names.handler,
    (l.saga)::text AS saga
   FROM (scoop.run_limit l
     CROSS JOIN LATERAL unnest(l.handlers) names(handler))
  WHERE (((l.saga)::text >= ''::text) AND (((NOT l.concurrency_by_key) AND (l.concurrency <= ( SELECT count(*) AS count
           FROM ( SELECT
                   FROM scoop.run r
                  WHERE ((r.state = 'running'::scoop.run_state) AND ((r.handler)::text = ANY (l.handlers)) AND (r.id >= '00000000-0000-0000-0000-000000000000'::uuid))
                 LIMIT l.concurrency) running))) OR ((NOT l.rate_by_key) AND (l.rate > 0) AND (EXISTS ( SELECT
           FROM scoop.rate_window w
          WHERE (((w.saga)::text = (l.saga)::text) AND ((w.key)::text = ''::text) AND (w.opens_at > clock_timestamp())))))));

CREATE TABLE scoop.redaction (
    topic character varying(63) NOT NULL,
    field text NOT NULL
);

CREATE TABLE scoop.redelivery (
    message_id uuid NOT NULL,
    root uuid NOT NULL,
    copy uuid,
    redelivered_at timestamp with time zone NOT NULL
);

CREATE TABLE scoop.relaunch (
    root uuid NOT NULL,
    of_root uuid NOT NULL,
    note text NOT NULL,
    source text NOT NULL,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT relaunch_texts_are_short CHECK (((octet_length(note) <= 1000000) AND (octet_length(source) <= 1000000)))
);

CREATE TABLE scoop.retention (
    is_only boolean DEFAULT true NOT NULL,
    taken_by uuid,
    taken_until timestamp with time zone,
    CONSTRAINT retention_is_only_check CHECK (is_only)
);

CREATE TABLE scoop.return_value (
    id uuid DEFAULT scoop.gen_uuid_v7() NOT NULL,
    cooperation_lineage uuid[] NOT NULL,
    handler_name character varying(255) NOT NULL,
    variable_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    value jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE VIEW scoop.runs WITH (security_invoker='true') AS
 SELECT r.root AS hierarchy,
    r.id AS run,
    r.parent,
    r.handler AS saga,
        CASE
            WHEN (r.state = 'ended'::scoop.run_state) THEN 'failed'::text
            ELSE scoop.phase(r.*)
        END AS state,
    r.rolling_back,
    regexp_replace((r.step)::text, '^(.*) \(waiting for (signal|scheduled time)\)$'::text, 'wait before \1'::text) AS last_step,
    scoop.phase_since(r.*) AS since,
    r.queued_at,
    r.began_at,
        CASE
            WHEN ((r.state = 'ready'::scoop.run_state) AND (r.parked_since IS NULL) AND (scoop.phase(r.*) <> ALL (ARRAY['awaiting signal'::text, 'waiting'::text])) AND (r.ready_at > statement_timestamp())) THEN r.ready_at
            ELSE NULL::timestamp with time zone
        END AS wakes_at,
    COALESCE((((r.tries).attempts)::bigint + (r.tries).retries), (0)::bigint) AS failed_attempts,
    r.reason,
    r.give_up_at AS deadline,
    r.giving_up,
    r.owner AS worker,
    (r.awaited).signal AS signal,
    (r.awaited).key AS signal_key,
        CASE
            WHEN (((r.awaited).signal IS NOT NULL) AND (r.ready_at < '9999-12-31 00:00:00+00'::timestamp with time zone)) THEN r.ready_at
            ELSE NULL::timestamp with time zone
        END AS awaits_until,
    r.topic,
    r.message_id AS message,
    r.last_event_at,
    COALESCE((r.newest_execution).number, 0) AS former_executions,
        CASE
            WHEN ((r.state = 'running'::scoop.run_state) OR (r.parked_since IS NOT NULL)) THEN r.limit_key
            ELSE NULL::character varying
        END AS limit_key,
        CASE scoop.priority_of(r.context)
            WHEN 1 THEN 'high'::text
            WHEN 0 THEN 'normal'::text
            ELSE 'low'::text
        END AS priority,
        CASE
            WHEN (r.state = 'ready'::scoop.run_state) THEN ( SELECT string_agg((((
                    CASE
                        WHEN ((p.pause ->> 'new_runs_only'::text))::boolean THEN 'for new runs only '::text
                        ELSE ''::text
                    END || 'by '::text) || (p.pause ->> 'source'::text)) || COALESCE((': '::text || (p.pause ->> 'reason'::text)), ''::text)), '; '::text ORDER BY p.place) AS string_agg
               FROM jsonb_array_elements(scoop.pauses_of((r.handler)::text, (r.topic)::text, scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))) WITH ORDINALITY p(pause, place))
            ELSE NULL::text
        END AS paused
   FROM scoop.run r
  WHERE (r.root <> '00000000-0000-0000-0000-000000000000'::uuid);

CREATE TABLE scoop.schedule (
    topic character varying(63) NOT NULL,
    handler character varying(255) NOT NULL,
    every_ms bigint,
    cron text,
    zone text,
    missed text NOT NULL,
    overlap text NOT NULL,
    next_at timestamp with time zone NOT NULL,
    run_count bigint DEFAULT 0 NOT NULL,
    last_root uuid,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_check CHECK ((((every_ms IS NULL) = (cron IS NOT NULL)) AND ((cron IS NULL) = (zone IS NULL)))),
    CONSTRAINT schedule_every_ms_check CHECK ((every_ms > 0)),
    CONSTRAINT texts_are_short CHECK (((octet_length(cron) <= 100000) AND (octet_length(zone) <= 1000) AND (octet_length(missed) <= 1000) AND (octet_length(overlap) <= 1000)))
);

CREATE TABLE scoop.signal (
    id uuid NOT NULL,
    name character varying(255) NOT NULL,
    key character varying(255) NOT NULL,
    payload jsonb NOT NULL,
    sent_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kept_until timestamp with time zone NOT NULL,
    delivered_at timestamp with time zone,
    reached integer DEFAULT 0 NOT NULL,
    expired boolean DEFAULT false NOT NULL,
    sent_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    traceparent character varying(55)
);

CREATE VIEW scoop.unfinished_run WITH (security_invoker='true') AS
 SELECT r.root,
    r.id,
    r.parent,
    r.lineage,
    r.message_id,
    r.topic,
    r.handler,
    r.state,
    r.ready_at,
    r.queued_at,
    r.began_at,
    r.owner,
    r.epoch,
    r.unclaimed_epoch,
    r.rolling_back,
    r.rollback_requested,
    r.step,
    r.suspended,
    r.suspensions,
    r.completions,
    r.outputs,
    r.context,
    r.replied,
    r.giving_up,
    r.give_up_at,
    r.rollback_since,
    r.failure,
    r.rollback_failure,
    r.last_event_at,
    r.tries,
    r.reason,
    r.reserved_for,
    r.refused_by,
    r.awaited,
    r.signalled_by,
    r.newest_execution,
    r.limit_key,
    r.parked_since,
    scoop.phase(r.*) AS phase,
    scoop.phase_since(r.*) AS since,
        CASE
            WHEN (r.state = 'failed'::scoop.run_state) THEN 'operator'::text
            WHEN ((r.state = 'waiting'::scoop.run_state) OR (scoop.phase(r.*) = 'waiting'::text)) THEN 'children'::text
            WHEN (r.state = 'stuck'::scoop.run_state) THEN
            CASE
                WHEN ((r.tries).unknown_attempts >= 12) THEN 'operator'::text
                ELSE 'program'::text
            END
            WHEN (r.state = 'running'::scoop.run_state) THEN 'nothing'::text
            WHEN (scoop.phase(r.*) = 'awaiting signal'::text) THEN 'signal'::text
            WHEN ((r.ready_at > clock_timestamp()) AND (r.parked_since IS NULL)) THEN 'time'::text
            WHEN (((r.handler)::text IN ( SELECT p.covers
               FROM scoop.paused p
              WHERE ((p.kind = 'handler'::text) AND (NOT p.new_runs_only)))) OR ((r.topic)::text IN ( SELECT (p.name)::text AS name
               FROM scoop.pause p
              WHERE ((p.kind = 'topic'::text) AND (NOT p.new_runs_only)))) OR (EXISTS ( SELECT
               FROM scoop.pause p
              WHERE ((p.kind = 'everything'::text) AND (NOT p.new_runs_only)))) OR ((EXISTS ( SELECT
               FROM scoop.pause p
              WHERE ((p.kind >= ''::text) AND p.new_runs_only))) AND (r.began_at IS NULL) AND scoop.is_paused_for_new((r.handler)::text, (r.topic)::text) AND scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))) THEN 'pause'::text
            WHEN (
            CASE
                WHEN (r.reserved_for = 0) THEN (((r.handler)::text, (r.topic)::text) IN ( SELECT s.handler,
                    s.topic
                   FROM scoop.served_queue s))
                ELSE (((r.handler)::text, (r.topic)::text, r.reserved_for) IN ( SELECT s.handler,
                    s.topic,
                    s.definition
                   FROM scoop.served_queue s))
            END IS NOT TRUE) THEN 'program'::text
            WHEN ((r.ready_at > clock_timestamp()) OR ((r.handler)::text IN ( SELECT l.handler
               FROM scoop.reached_limit l))) THEN 'limit'::text
            ELSE 'slot'::text
        END AS waits_for,
        CASE
            WHEN (r.state = 'failed'::scoop.run_state) THEN r.rollback_failure
            ELSE r.failure
        END AS latest_failure,
        CASE
            WHEN (r.state = 'failed'::scoop.run_state) THEN r.failure
            ELSE r.rollback_failure
        END AS other_failure
   FROM scoop.run r
  WHERE (r.state <> 'ended'::scoop.run_state);

INSERT INTO scoop.migration VALUES (1, 'tables', '2026-11-30 00:49:11.515612+00', true, '\x0a6e100674c40776ebbd15376ae8c23d5279bc8c378ad0f028504cf8385acc479b2fadb6911a7a94e54dd7a9a13b0331', 54276066);
INSERT INTO scoop.migration VALUES (2, 'pauses', '2026-11-30 00:49:11.57092+00', true, '\x651c7fc30023344bf1563cce6db8499357b8df6f22c1ac93f6f4abf65219f55c409d8eba38bf356a121c6b0c5fbe224b', 2941351);
INSERT INTO scoop.migration VALUES (3, 'views', '2026-11-30 00:49:11.574099+00', true, '\x1fe0a80979d2b5cf61963a59841c726d728fbd4e94282018db353b7c998541704bf0e75f15b6ef43159063fa9ca471b2', 7882799);
INSERT INTO scoop.migration VALUES (4, 'runs', '2026-11-30 00:49:11.582168+00', true, '\x88a098cf01154bccb616f2662910d40a0858465673b1981942ec430b8b5f6be8e4e9135b20b2ab90dda2d5637a0c2d54', 1437511);
INSERT INTO scoop.migration VALUES (5, 'settle', '2026-11-30 00:49:11.583779+00', true, '\x578cd7cdecf11108526e22a64ea30618d3a246f0790689430ecf3163efe654bc76bf46711872e2424fd27e7e664f1704', 2069332);
INSERT INTO scoop.migration VALUES (6, 'failures', '2026-11-30 00:49:11.585984+00', true, '\xcbfe88408ec92449eb800000982884500448ca7c41637a7fbcafb5aa0f978cf5feb313dd288f7a1b44141ce0c9e2d832', 1388027);
INSERT INTO scoop.migration VALUES (7, 'launches', '2026-11-30 00:49:11.587532+00', true, '\x5d7b4b808321d971415127f3474b2db5a4494ce265247fe94887a4acaadc63e989751caf75b64d738f5dc4e78f3f9529', 1240567);
INSERT INTO scoop.migration VALUES (8, 'queue limits', '2026-11-30 00:49:11.588911+00', true, '\xc3f5f343bdd26973c0d469f7e13d283384c20b280e5bdc38598787f0f7255f3195a96178ecd1098ae96df3b024a48a4c', 549308);
INSERT INTO scoop.migration VALUES (9, 'retention', '2026-11-30 00:49:11.589608+00', true, '\x36a0bcdc0144b560e5e1cdb5dada51ff91aea58c62efc835d8e1af66e3024856e8639904b51651ecc4f507be89f1b08e', 4332491);
INSERT INTO scoop.migration VALUES (10, 'version', '2026-11-30 00:49:11.594153+00', true, '\x1de5bb25548ef63efea10f4ad47c67240f966dfdccf4e40ab1b5a36fba19e45a3179e7c7c2f66d0ca312f8da7a228739', 565872);

INSERT INTO scoop.retention VALUES (true, NULL, NULL);

ALTER TABLE ONLY scoop.kept_hierarchy
    ADD CONSTRAINT kept_hierarchy_pkey PRIMARY KEY (root);

CREATE FUNCTION scoop.put_off(hierarchy uuid, until_at timestamp with time zone, why text, failures_count boolean) RETURNS void
    LANGUAGE sql
    BEGIN ATOMIC
 INSERT INTO scoop.kept_hierarchy AS kept (root, until, failures, error)
   VALUES (put_off.hierarchy, put_off.until_at,
         CASE
             WHEN (put_off.why IS NULL) THEN 0
             ELSE 1
         END, "left"(put_off.why, 1000)) ON CONFLICT ON CONSTRAINT kept_hierarchy_pkey DO UPDATE SET until = excluded.until, error =
         CASE
             WHEN ((put_off.why IS NULL) AND put_off.failures_count) THEN kept.error
             ELSE excluded.error
         END, failures = (
         CASE
             WHEN put_off.failures_count THEN GREATEST(0, LEAST(kept.failures, 1000))
             ELSE 0
         END + excluded.failures);
 UPDATE scoop.ended_run r SET put_off = true
   WHERE ((r.root = put_off.hierarchy) AND (cardinality(r.lineage) = 2) AND (NOT r.put_off));
END;

ALTER TABLE ONLY scoop.begun_step
    ADD CONSTRAINT begun_step_pkey PRIMARY KEY (run, instance);

ALTER TABLE ONLY scoop.definition
    ADD CONSTRAINT definition_handler_fingerprint_key UNIQUE (handler, fingerprint);

ALTER TABLE ONLY scoop.definition
    ADD CONSTRAINT definition_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.ended_pause
    ADD CONSTRAINT ended_pause_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.ended_run
    ADD CONSTRAINT ended_run_pkey PRIMARY KEY (root, id);

ALTER TABLE ONLY scoop.entity_event
    ADD CONSTRAINT entity_event_pkey PRIMARY KEY (name, key, version);

ALTER TABLE ONLY scoop.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (name, key);

ALTER TABLE ONLY scoop.execution
    ADD CONSTRAINT execution_pkey PRIMARY KEY (run, number);

ALTER TABLE ONLY scoop.find_field
    ADD CONSTRAINT find_field_pkey PRIMARY KEY (topic, name);

ALTER TABLE ONLY scoop.found_by
    ADD CONSTRAINT found_by_pkey PRIMARY KEY (found, name);

ALTER TABLE ONLY scoop.handler
    ADD CONSTRAINT handler_pkey PRIMARY KEY (topic, handler, since);

ALTER TABLE ONLY scoop.intervention
    ADD CONSTRAINT intervention_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.join_member
    ADD CONSTRAINT join_member_pkey PRIMARY KEY (run);

ALTER TABLE ONLY scoop.keep_time
    ADD CONSTRAINT keep_time_pkey PRIMARY KEY (topic, handler);

ALTER TABLE ONLY scoop.kept_key
    ADD CONSTRAINT kept_key_pkey PRIMARY KEY (message_id);

ALTER TABLE ONLY scoop.launches
    ADD CONSTRAINT launches_pkey PRIMARY KEY (saga, step, topic);

ALTER TABLE ONLY scoop.limit_log
    ADD CONSTRAINT limit_log_pkey PRIMARY KEY (saga, number);

ALTER TABLE ONLY scoop.message_event
    ADD CONSTRAINT message_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.message
    ADD CONSTRAINT message_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY scoop.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY scoop.rate_window
    ADD CONSTRAINT rate_window_pkey PRIMARY KEY (saga, key);

ALTER TABLE ONLY scoop.redaction
    ADD CONSTRAINT redaction_pkey PRIMARY KEY (topic, field);

ALTER TABLE ONLY scoop.redelivery
    ADD CONSTRAINT redelivery_pkey PRIMARY KEY (message_id);

ALTER TABLE ONLY scoop.relaunch
    ADD CONSTRAINT relaunch_pkey PRIMARY KEY (root);

ALTER TABLE ONLY scoop.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (is_only);

ALTER TABLE ONLY scoop.return_value
    ADD CONSTRAINT return_value_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.run_limit
    ADD CONSTRAINT run_limit_pkey PRIMARY KEY (saga);

ALTER TABLE ONLY scoop.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (root, id);

ALTER TABLE ONLY scoop.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (topic, handler);

ALTER TABLE ONLY scoop.signal
    ADD CONSTRAINT signal_pkey PRIMARY KEY (id);

ALTER TABLE ONLY scoop.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);

CREATE INDEX ended_pause_at ON scoop.ended_pause USING btree (ended_at);

CREATE INDEX ended_run_due ON scoop.ended_run USING btree (topic, outcome, ended_at) WHERE ((cardinality(lineage) = 2) AND (NOT put_off));

CREATE INDEX ended_run_listed ON scoop.ended_run USING btree (outcome, handler, ended_at, id);

CREATE INDEX entity_event_message ON scoop.entity_event USING btree (message_id);

CREATE INDEX found_by_value ON scoop.found_by USING btree (name, value, launched_at, found) INCLUDE (root);

CREATE UNIQUE INDEX handler_listening ON scoop.handler USING btree (topic, handler) WHERE (retired_at IS NULL);

CREATE INDEX handler_renamed ON scoop.handler USING btree (handler) WHERE (was IS NOT NULL);

CREATE INDEX handler_retired ON scoop.handler USING btree (topic, handler, retired_at) WHERE (retired_at IS NOT NULL);

CREATE INDEX intervention_root ON scoop.intervention USING btree (root, run);

CREATE INDEX intervention_run ON scoop.intervention USING btree (run, requested_at, id);

CREATE INDEX join_due ON scoop.join_member USING btree (saga, topic, expires_at, run) WHERE ((joined IS NULL) AND (refused IS NULL) AND (expires_at IS NOT NULL));

CREATE INDEX join_joined ON scoop.join_member USING btree (joined) WHERE (joined IS NOT NULL);

CREATE INDEX join_message ON scoop.join_member USING btree (message_id);

CREATE INDEX join_waiting ON scoop.join_member USING btree (saga, key, topic, since, run) WHERE ((joined IS NULL) AND (refused IS NULL));

CREATE INDEX kept_hierarchy_due ON scoop.kept_hierarchy USING btree (((failures > 0)), until);

CREATE INDEX kept_key_until ON scoop.kept_key USING btree (until);

CREATE INDEX message_event_run ON scoop.message_event USING btree (scoop.run_id(cooperation_lineage), created_at);

CREATE UNIQUE INDEX one_per_handler ON scoop.message_event USING btree (message_id, coroutine_name, type) WHERE (type = ANY (ARRAY['SEEN'::scoop.message_event_type, 'ROLLING_BACK'::scoop.message_event_type]));

CREATE UNIQUE INDEX one_per_message ON scoop.message_event USING btree (message_id, type) WHERE (type = ANY (ARRAY['EMITTED'::scoop.message_event_type, 'ROLLBACK_EMITTED'::scoop.message_event_type]));

CREATE UNIQUE INDEX one_per_run ON scoop.message_event USING btree ((cooperation_lineage[1]), scoop.run_id(cooperation_lineage)) WHERE (type = 'CANCELLATION_REQUESTED'::scoop.message_event_type);

CREATE INDEX pause_until ON scoop.pause USING btree (until) WHERE (until IS NOT NULL);

CREATE INDEX rate_window_idle ON scoop.rate_window USING btree (saga, idle_at) WHERE (NOT has_parked);

CREATE INDEX rate_window_parked ON scoop.rate_window USING btree (saga, opens_at) WHERE has_parked;

CREATE INDEX relaunch_of ON scoop.relaunch USING btree (of_root, requested_at);

CREATE INDEX return_value_reply ON scoop.return_value USING btree (scoop.run_id(cooperation_lineage), handler_name) WHERE ((variable_name)::text !~~ 'Output of %'::text);

CREATE INDEX run_give_up ON scoop.run USING btree (state, giving_up, give_up_at) WHERE ((state = ANY (ARRAY['waiting'::scoop.run_state, 'ready'::scoop.run_state])) AND (giving_up OR (give_up_at IS NOT NULL)));

CREATE INDEX run_limit_renamed ON scoop.run_limit USING btree (saga) WHERE (handlers <> ARRAY[(saga)::text]);

CREATE INDEX run_listed ON scoop.run USING btree (state, handler, id) WHERE ((state <> 'ended'::scoop.run_state) AND (id >= '00000000-0000-0000-0000-000000000000'::uuid));

CREATE INDEX run_parent ON scoop.run USING btree (root, parent) WHERE (parent IS NOT NULL);

CREATE INDEX run_parked ON scoop.run USING btree (handler, topic, reserved_for, limit_key, scoop.priority_of(context), parked_since) WHERE (parked_since IS NOT NULL);
ALTER INDEX scoop.run_parked ALTER COLUMN 5 SET STATISTICS 0;

CREATE INDEX run_rare ON scoop.run USING btree (scoop.rare_kind(state, tries, context, limit_key, parked_since), ready_at, id) WHERE ((scoop.rare_kind(state, tries, context, limit_key, parked_since) IS NOT NULL) OR (reserved_for <> 0));
ALTER INDEX scoop.run_rare ALTER COLUMN 1 SET STATISTICS 0;

CREATE INDEX run_ready ON scoop.run USING btree (handler, topic, reserved_for, scoop.priority_of(context), ready_at) WHERE (state = 'ready'::scoop.run_state);
ALTER INDEX scoop.run_ready ALTER COLUMN 4 SET STATISTICS 0;

CREATE INDEX run_signal ON scoop.run USING btree (((awaited).signal), ((awaited).key)) WHERE ((state = 'ready'::scoop.run_state) AND (((awaited).signal IS NOT NULL) OR ((awaited).children IS NOT NULL)));
ALTER INDEX scoop.run_signal ALTER COLUMN 1 SET STATISTICS 0;
ALTER INDEX scoop.run_signal ALTER COLUMN 2 SET STATISTICS 0;

CREATE INDEX signal_expiring ON scoop.signal USING btree (kept_until) WHERE ((delivered_at IS NULL) AND (NOT expired) AND (reached >= 0));

CREATE INDEX signal_kept ON scoop.signal USING btree (name, key, kept_until, sent_at, id) WHERE ((delivered_at IS NULL) AND (NOT expired));

CREATE INDEX signal_over ON scoop.signal USING btree (COALESCE(delivered_at, kept_until));

CREATE INDEX signal_sent_in ON scoop.signal USING btree (sent_in) WHERE ((delivered_at IS NULL) AND (NOT expired) AND (sent_in IS NOT NULL));

CREATE UNIQUE INDEX unique_return_value_per_lineage_handler_variable ON scoop.return_value USING btree (scoop.run_id(cooperation_lineage), handler_name, variable_name);

REVOKE ALL ON FUNCTION scoop.keep_unhandled(hierarchy uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.launch(messages jsonb, OUT launched bigint, OUT handlers text[], OUT refused text, OUT refused_type text) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.prune(hierarchy uuid, keep_committed double precision, keep_rolled_back double precision, is_by_topic boolean, is_dry_run boolean, OUT verdict text, OUT message_count bigint, OUT event_count bigint, OUT look_at timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.prune_keys(limit_to bigint, is_dry_run boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.prune_signals(older_than interval, limit_to bigint, is_dry_run boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.record_found_by(messages uuid[], numbers smallint[], names text[], "values" jsonb[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.retention_next(worker uuid, keep_committed double precision, keep_rolled_back double precision, max_count bigint, has_archive boolean, OUT roots uuid[], OUT is_more boolean, OUT behind double precision) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.retention_put_off(hierarchy uuid, why text, retry_after double precision) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.retention_settle(worker uuid, keep_committed double precision, keep_rolled_back double precision, roots uuid[], archived uuid[], is_last boolean, retry_after double precision) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.send_signal(id uuid, name text, key text, payload jsonb, seconds_kept double precision, traceparent text) FROM PUBLIC;

REVOKE ALL ON FUNCTION scoop.trim_ended_pauses() FROM PUBLIC;

SELECT scoop.add_ballast();
ANALYZE scoop.run;
