-- Returns those of these messages for which a handle need not wait any more: no run of it goes on without an operator, it does
-- not exist, or, of a command, it is decided. `message_status.sql` and `command_read_decision.sql` say more. For each message
-- there is one look into an index, however many there are.
-- Locks: nothing.
-- $1 the roots, $2 their messages, $3 the names of the decisions that count, or null
SELECT waited.message
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS waited (root, message, decision)
LEFT JOIN LATERAL (
    SELECT true AS goes_on
    FROM scoop.run r
    WHERE r.root = waited.root AND r.message_id = waited.message AND r.state <> 'failed'
    LIMIT 1
) unfinished ON true
LEFT JOIN LATERAL (
    SELECT true AS made
    FROM scoop.message_event seen
    CROSS JOIN LATERAL (
        SELECT FROM scoop.return_value v
        WHERE scoop.run_id(v.cooperation_lineage) = scoop.run_id(seen.cooperation_lineage)
          AND v.handler_name = seen.coroutine_name AND v.variable_name = waited.decision
        OFFSET 0
    ) decided
    WHERE waited.decision IS NOT NULL AND seen.message_id = waited.message AND seen.type = 'SEEN'
    LIMIT 1
) decided ON true
WHERE unfinished.goes_on IS NULL OR decided.made
