-- The columns in which a run that goes on records its step.
epoch = r.epoch OPERATOR(pg_catalog.+) 1,
        step = s.step, suspended = ROW(s.jump, s.definition, s.iteration, s.handler_iteration, NULL::pg_catalog.jsonb)::scoop.suspended,
        suspensions = s.suspensions, completions = s.completions,
        outputs = s.outputs, replied = s.replied, give_up_at = NULL, tries = NULL, reason = NULL
