SET LOCAL search_path = pg_catalog, pg_temp;

-- Messages that had no handler when they were launched, and that were delivered later, each at most once. Written
-- by redeliveries only: a launch without a handler leaves no row besides its EMITTED.
CREATE TABLE scoop.redelivery (
    message_id     uuid PRIMARY KEY,
    root           uuid NOT NULL,  -- the hierarchy of the runs: that of the message if it started one, else a new one
    copy           uuid,           -- the message launched in place of one that a run had launched
    redelivered_at timestamptz NOT NULL  -- it went to the handlers registered then
);
