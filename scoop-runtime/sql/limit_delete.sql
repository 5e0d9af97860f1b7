-- Deletes the limits of sagas that have one of these names now, also if a damaged row lists other ones. A name that another saga had
-- is taken out of its list: another saga has it now. A row that lists none but these names is deleted, too.
-- Locks: these rows of run_limit.
-- $1 names
WITH left_by_others AS (
    UPDATE scoop.run_limit l
    SET handlers = ARRAY(
        SELECT names.handler FROM unnest(l.handlers) WITH ORDINALITY AS names (handler, place)
        WHERE names.handler <> ALL ($1::text[]) ORDER BY names.place)
    WHERE l.handlers && $1::text[] AND NOT l.handlers <@ $1::text[] AND l.saga <> ALL ($1::text[])
)
DELETE FROM scoop.run_limit l
WHERE l.saga = ANY ($1::text[]) OR l.handlers && $1::text[] AND l.handlers <@ $1::text[]
