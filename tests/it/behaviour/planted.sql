-- Functions, operators, types and tables of names that the engine uses; `calls` counts the calls. Operators are those of the
-- server with exact types, so that they are chosen wherever the path leads here.
CREATE SEQUENCE public.calls;
CREATE TABLE public.run AS SELECT FROM pg_catalog.generate_series(1, 3);
CREATE TABLE public.message AS SELECT FROM pg_catalog.generate_series(1, 3);
CREATE TYPE public.uuid AS (planted text);
DO $do$
DECLARE
    o record;
BEGIN
    FOR o IN
        SELECT DISTINCT oprname AS name, format_type(l, NULL) AS l, format_type(r, NULL) AS r,
               format_type(CASE WHEN oprresult::regtype::text ~ '^any' THEN l ELSE oprresult END, NULL) AS result
        FROM pg_operator
        CROSS JOIN LATERAL (
            SELECT oprleft, oprright WHERE oprleft::regtype::text !~ '^any' AND oprright::regtype::text !~ '^any'
            UNION ALL
            SELECT list, CASE WHEN oprright::regtype::text ~ 'array' THEN list ELSE element END
            FROM (VALUES ('uuid[]'::regtype, 'uuid'::regtype), ('int[]', 'int'), ('text[]', 'text')) AS v (list, element)
            WHERE oprleft::regtype::text ~ '^any.*array' AND oprright::regtype::text ~ '^any'
            UNION ALL
            SELECT v, v FROM unnest(ARRAY['scoop.run_state', 'scoop.message_event_type']::regtype[]) v
            WHERE oprleft = 'anyenum'::regtype
            UNION ALL
            SELECT 'varchar'::regtype, v FROM unnest(ARRAY['varchar', 'text']::regtype[]) v
            WHERE oprleft = 'text'::regtype AND oprright = 'text'::regtype
        ) AS types (l, r)
        WHERE oprnamespace = 'pg_catalog'::regnamespace
          AND oprname IN ('=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '*', '&&', '@>', '<@', '->', '->>', '?')
          AND l::regtype::text = ANY ('{uuid,text,character varying,name,integer,bigint,boolean,jsonb,interval,
              timestamp with time zone,uuid[],integer[],text[],scoop.run_state,scoop.message_event_type}')
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%5$I (a %1$s, b %2$s, OUT c %3$s) LANGUAGE plpgsql AS $f$
                 BEGIN PERFORM pg_catalog.nextval(''public.calls''); c := a OPERATOR(pg_catalog.%4$s) b; END $f$;
             CREATE OPERATOR public.%4$s (FUNCTION = public.%5$I, LEFTARG = %1$s, RIGHTARG = %2$s)',
            o.l, o.r, o.result, o.name, concat('planted ', o.name));
    END LOOP;
    FOR o IN
        SELECT * FROM (VALUES
            ('cardinality', 'uuid[]', 'int'), ('cardinality', 'int[]', 'int'), ('clock_timestamp', NULL, 'timestamptz'),
            ('statement_timestamp', NULL, 'timestamptz'), ('now', NULL, 'timestamptz'),
            ('array_remove', 'int[], int', 'int[]'), ('array_position', 'uuid[], uuid', 'int'),
            ('current_setting', 'text, boolean', 'text'), ('pg_try_advisory_xact_lock', 'bigint', 'boolean'),
            ('pg_advisory_xact_lock', 'bigint', 'void'), ('hashtextextended', 'text, bigint', 'bigint'),
            ('pg_notify', 'text, text', 'void'), ('gen_random_uuid', NULL, 'uuid'), ('format', 'text, text, text', 'text')
        ) AS v (name, arguments, result)
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%1$I (%2$s) RETURNS %3$s LANGUAGE plpgsql AS $f$
                 BEGIN PERFORM pg_catalog.nextval(''public.calls''); RETURN %4$s; END $f$',
            o.name, o.arguments, o.result,
            CASE WHEN o.result <> 'void' THEN format('pg_catalog.%I(%s)', o.name, (
                SELECT string_agg(concat('$', n), ', ') FROM generate_series(1, cardinality(string_to_array(o.arguments, ','))) n
            )) END);
    END LOOP;
END $do$;
