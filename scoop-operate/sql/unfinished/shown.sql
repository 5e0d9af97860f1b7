-- What lists and explanations show of the unfinished runs `u`.
u.root, u.id, u.parent, u.message_id, u.topic, u.handler, u.phase, u.since, u.waits_for, u.ready_at,
       coalesce((u.tries).attempts, 0) AS attempts, coalesce((u.tries).retries, 0) AS retries, left(u.reason, 10000) AS reason, u.rolling_back,
       scoop.can_give_up(u.giving_up, u.rollback_since) AS can_give_up,
       scoop.shown_failure(u.latest_failure) AS failure, u.give_up_at, u.owner, (u.awaited).signal, (u.awaited).key AS signal_key, u.step,
       u.queued_at, u.began_at,
       (SELECT own.found_by FROM (SELECT u.root, u.message_id) r CROSS JOIN LATERAL (SELECT {found_shown}) own) AS found_by
