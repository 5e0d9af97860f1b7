-- The settlements of runs: the parameters of settlement_one.sql as arrays, with an element for each run.
settlement AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::pg_catalog.uuid[], $2::pg_catalog.uuid[], $3::pg_catalog.int8[], $4::varchar[], $5::int[], $6::int[],
        $7::int[], $8::int[], $9::pg_catalog.jsonb[], $10::pg_catalog.bool[], $11::pg_catalog.jsonb[], $12::varchar[],
        $13::pg_catalog.jsonb[], $14::pg_catalog.uuid[], $15::varchar[], $16::int[], $17::pg_catalog.jsonb[],
        $18::pg_catalog.text[], $19::pg_catalog.uuid[], $20::int[], $21::pg_catalog.jsonb[]
    ) WITH ORDINALITY AS s (root, id, epoch, step, next_step, iteration, handler_iteration, suspensions, outputs,
                            replied, new_context, name, value, suspended_id, jump, definition, completions, ends, last_id,
                            message_count, because, nth)
)
