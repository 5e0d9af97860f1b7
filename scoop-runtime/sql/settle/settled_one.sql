-- The run that is settled, with its settlement: single parameters, which need not go through the rows.
settled_run CROSS JOIN settlement
