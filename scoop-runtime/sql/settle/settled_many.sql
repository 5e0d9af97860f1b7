-- The runs that are settled, each with its settlement.
settled_run
