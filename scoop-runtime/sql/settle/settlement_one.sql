-- The settlement of one run, from single parameters: in the server they cost less than lists of one element.
-- $1 root, $2 run, $3 epoch, $4 the step, $5 the position that follows it, $6 how often it was repeated, $7 how often
-- the failures of children were handled, $8 how many steps came before it, $9 what the steps returned, $10 whether the
-- run replied, $11 the context if that has changed, $12 and $13 what the step returned, $14 the id of the SUSPENDED,
-- $15 the step that was chosen to run next, $16 the definition under which the step completed, $17 how often each step
-- completed, $18 COMMITTED or ROLLED_BACK if the run ends, $19 the id of that event, $20 how many messages the step
-- launches or has rolled back, $21 why it has them rolled back
settlement AS NOT MATERIALIZED (
    SELECT $1::pg_catalog.uuid AS root, $2::pg_catalog.uuid AS id, $3::pg_catalog.int8 AS epoch,
           $4::varchar AS step, $5::int AS next_step, $6::int AS iteration, $7::int AS handler_iteration,
           $8::int AS suspensions, $9::pg_catalog.jsonb AS outputs, $10::pg_catalog.bool AS replied,
           $11::pg_catalog.jsonb AS new_context, $12::varchar AS name, $13::pg_catalog.jsonb AS value,
           $14::pg_catalog.uuid AS suspended_id, $15::varchar AS jump, $16::int AS definition,
           $17::pg_catalog.jsonb AS completions, $18::pg_catalog.text AS ends, $19::pg_catalog.uuid AS last_id,
           $20::int AS message_count, $21::pg_catalog.jsonb AS because, 1::pg_catalog.int8 AS nth
)
