SET LOCAL search_path = pg_catalog, pg_temp;

-- The number of the newest migration. Each later one replaces it.
CREATE FUNCTION scoop.schema_version() RETURNS int LANGUAGE sql IMMUTABLE RETURN 10;
