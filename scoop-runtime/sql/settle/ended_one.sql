-- The run that ends, with its settlement.
settled_run CROSS JOIN settlement
