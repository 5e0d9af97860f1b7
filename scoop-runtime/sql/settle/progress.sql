-- The columns in which a run that goes on records its step.
epoch = r.epoch OPERATOR(pg_catalog.+) 1,
        step = s.step, jump = s.jump, definition = s.definition, iteration = s.iteration,
        handler_iteration = s.handler_iteration, suspensions = s.suspensions, completions = s.completions,
        outputs = s.outputs, replied = s.replied, give_up_at = NULL, attempts = 0, retries = 0, reason = NULL
