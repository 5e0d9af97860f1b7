-- The runs that end, each with its settlement.
deleted_run
