-- The claim holds: the run is as it was claimed, the step has not ended its transaction itself, and the run has not to
-- give up. $22 what `scoop_run.claim` must be in this transaction: null outside the transaction of a step. The advisory
-- locks of the session of a step end here: that costs less than a statement of its own after the commit.
r.root OPERATOR(pg_catalog.=) s.root AND r.id OPERATOR(pg_catalog.=) s.id AND r.epoch OPERATOR(pg_catalog.=) s.epoch
      AND r.state OPERATOR(pg_catalog.=) 'running'
      AND ($22::pg_catalog.text IS NULL
           OR pg_catalog.current_setting('scoop_run.claim', true) OPERATOR(pg_catalog.=) $22
              AND pg_catalog.pg_advisory_unlock_all() IS NOT NULL)
      AND NOT scoop.has_to_give_up(r.giving_up, r.give_up_at, pg_catalog.clock_timestamp())
