-- Since when are transactions open that write? A time before the beginning of each of this database. A transaction that begins to
-- write after this statement has begun does so later than that: read the end of the record after it.
-- A role that is no member of `pg_read_all_stats` does not see since when transactions of other roles are open, and nothing
-- tells when a prepared one began. Beside such transactions, the time is an hour ago.
-- Locks: nothing.
SELECT least(
           statement_timestamp(), open.since,
           CASE WHEN open.is_hidden OR EXISTS (SELECT FROM pg_prepared_xacts p WHERE p.database = current_database())
                THEN statement_timestamp() - interval '1 hour'
           END) AS at
FROM (
    SELECT min(a.xact_start) AS since, coalesce(bool_or(a.xact_start IS NULL), false) AS is_hidden
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL
) open
