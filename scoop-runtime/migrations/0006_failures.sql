SET LOCAL search_path = pg_catalog, pg_temp;

-- Failures as programs read them, and messages about failed runs.

-- Whether a value has more levels than programs write and read. Looks at no level below these: the server has no stack for many.
CREATE FUNCTION scoop.is_deep(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")');

-- Whether programs can read a value, or it is null: a worker reads it into its memory, and JSON of programs has no larger
-- numbers and no deeper values. The planner replaces the call by its text.
CREATE FUNCTION scoop.is_readable(value jsonb, bytes_max int) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN octet_length(value::text) > bytes_max OR scoop.is_deep(value) THEN false
    ELSE NOT coalesce(
        jsonb_path_exists(value, 'strict $.** ? (@.type() == "number" && (@ > 1.7e308 || @ < -1.7e308))'), false)
END;

-- How many bytes a stored value has at most when it is read, by its stored size alone. Programs store failures and waits
-- uncompressed; a compressed value has at most 255 times its stored bytes. The planner replaces the call by its text.
CREATE FUNCTION scoop.bytes_of(value jsonb) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN pg_column_compression(value) IS NULL THEN 1 ELSE 255 END * pg_column_size(value)::bigint;

-- How many bytes of a failure are read at most: none of one above 256 KiB. Programs write about 128 KiB at most. The planner
-- replaces the call by its text.
CREATE FUNCTION scoop.shown_bytes(failure jsonb) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN scoop.bytes_of(failure) > 262144 THEN 0 ELSE scoop.bytes_of(failure) END;

-- A failure as lists of runs read it: one that is larger than programs write, or has more levels, is left out. The planner replaces
-- the call by its text.
CREATE FUNCTION scoop.shown_failure(failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN failure IS NULL THEN NULL
    WHEN scoop.shown_bytes(failure) = 0
        THEN jsonb_build_object(
            'type', 'TooLarge', 'source', 'unknown',
            'message', 'the failure is too large to be read: ' || pg_column_size(failure) || ' bytes as it is stored')
    WHEN scoop.is_deep(failure)
        THEN '{"type": "TooDeep", "source": "unknown", "message": "the failure has too many levels to be read"}'
    ELSE failure
END;

-- Sends the message `Failed` about a run that ended or is stuck, to each topic of it that has a handler. Returns the
-- handlers with a new run. One message for each event of the run: a run that is stuck again without an event in between
-- sends nothing. Nothing is sent either in a hierarchy that a `Failed` has started.
-- Locks: nothing.
-- `at` is the time of the last event of the run, `failed_in` the step: null for that in which it began to roll back.
CREATE FUNCTION scoop.send_failed(
    outcome text, run_root uuid, run uuid, saga text, of_message uuid, at timestamptz, failed_in text, failure jsonb,
    rollback_failure jsonb) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
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
        SELECT DISTINCT h.topic FROM scoop.handler h
        WHERE h.topic = ANY (ARRAY[
                prefix, prefix || '.' || outcome, prefix || ':' || saga, prefix || '.' || outcome || ':' || saga])
          AND h.retired_at IS NULL
    );
    IF topics = '{}' OR EXISTS (
        SELECT FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = run_root
          AND e.type::text = 'EMITTED'  -- not as a type: the planner would read all of `one_per_message`
          AND starts_with((SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id), prefix)
    ) THEN
        RETURN '{}';
    END IF;
    IF outcome = 'stuck' THEN
        SELECT max(e.created_at) INTO of_event FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = run;
    END IF;
    SELECT jsonb_build_object(
            'outcome', outcome, 'saga', saga, 'hierarchy', run_root, 'run', run,
            'topic', m.topic, 'at', at, 'failure', failure, 'rollback_failure', nullif(rollback_failure, 'null'),
            -- Constant types: with any other the planner cannot use the partial index.
            'step', coalesce(failed_in, (
                SELECT e.step FROM scoop.message_event e
                WHERE e.message_id = of_message AND e.coroutine_name = saga AND e.type = 'ROLLING_BACK'))),
        jsonb_build_object('payload', coalesce((
            SELECT newest.payload
            FROM scoop.execution x
            JOIN scoop.message newest ON newest.id = x.message_id
            WHERE x.run = send_failed.run
            ORDER BY x.number DESC
            LIMIT 1
        ), m.payload))
    INTO document, with_payload
    FROM scoop.message m WHERE m.id = of_message;
    with_payload := document || with_payload;
    IF scoop.is_readable(with_payload, 1048576) THEN
        document := with_payload;
    ELSIF NOT scoop.is_readable(document, 1048576) THEN
        -- a value of an error may be too deep: it is among the causes
        document := document || jsonb_build_object(
            'failure', failure - 'causes', 'rollback_failure', rollback_failure - 'causes');
    END IF;
    SELECT l.handlers INTO ready_handlers FROM scoop.launch((
        SELECT jsonb_agg(jsonb_build_object(
            'id', encode(substring(sha256(convert_to(concat_ws(' ', topic, outcome, run, extract(epoch FROM of_event)), 'UTF8'))
                         FROM 1 FOR 16), 'hex'),
            'root', scoop.gen_uuid_v7(), 'topic', topic, 'payload', document, 'context', '{}'::jsonb))
        FROM unnest(topics) AS topic
    )) l;
    RETURN ready_handlers;
END $$;

-- Why a run is stuck, as a failure.
CREATE FUNCTION scoop.stuck_failure(saga text, reason text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN jsonb_build_object(
    'message', coalesce(reason, 'stuck'), 'type', 'Stuck', 'source', saga, 'stackTrace', '[]'::jsonb,
    'causes', '[]'::jsonb);
