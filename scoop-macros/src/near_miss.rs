//! Settings under the names that other libraries use.

/// The replacement for a key that an attribute does not have, if one is known.
pub(crate) fn hint(attribute: &str, key: &str) -> Option<&'static str> {
    let hint = match (attribute, key) {
        ("#[step]", "retries" | "attempts" | "max_attempts" | "max_retries" | "tries") => {
            "`retry(max = 5)`, which tries the step again before its failure counts"
        }
        ("#[step]", "backoff" | "jitter" | "max") => {
            "`retry(max = 5, backoff = \"100ms..30s\", jitter = 0.2)`"
        }
        ("#[step]", "rollback_retries" | "retry_rollback") => {
            "`rollback_retry(max = 5)`, which tries the rollback again before its failure counts"
        }
        ("#[step]", "compensate" | "compensation" | "compensate_with" | "undo" | "revert") => {
            "`rollback = function`, which undoes the step once it is completed"
        }
        ("#[step]", "on_failure" | "on_error" | "on_fail" | "catch") => {
            "`rollback = function` to undo the step, `on_child_failure = function` to handle failures of \
             what it launched, or `finally = function` to clean up in any case"
        }
        ("#[step]", "cleanup" | "always" | "ensure" | "on_exit") => {
            "`finally = function`, which cleans up whether the step failed or not"
        }
        ("#[step]", "delay" | "after" | "wait" | "pause") => {
            "`sleep = \"2 days\"` to pause after the step, or `at = function` to say when it is due"
        }
        ("#[step]", "when" | "due" | "not_before" | "until") => {
            "`at = function`, which says when the step is due"
        }
        ("#[step]", "deadline" | "time_limit" | "limit" | "max_duration") => {
            "`timeout = \"30s\"`, which limits each attempt of the step"
        }
        ("#[step]", "id" | "rename") => "`name = \"..\"`, which the step is stored as",
        ("retry" | "rollback_retry", "times" | "attempts" | "max_attempts" | "max_retries" | "count") => {
            "`max = 5`, the number of further attempts"
        }
        ("retry" | "rollback_retry", "delay" | "pause" | "wait" | "interval" | "sleep") => {
            "`backoff = \"100ms..30s\"`, the first pause and the longest"
        }
        ("retry" | "rollback_retry", "on" | "only_if" | "condition" | "retry_if") => {
            "`when = function`, which says what errors are worth another attempt"
        }
        ("#[saga]", "schedule" | "at") => "`cron = \"0 3 * * *\"` or `every = \"1h\"`",
        ("#[saga]", "interval" | "period") => "`every = \"1h\"`",
        ("#[saga]", "timezone" | "time_zone" | "tz") => "`zone = \"Europe/Prague\"`",
        ("#[saga]", "subscribes" | "message" | "topic") => "`#[subscribes(YourMessage)]` below `#[saga]`",
        ("#[saga]", "limit" | "max_concurrency" | "parallelism" | "workers") => {
            "`concurrency = 10` for the whole saga, or `concurrency(1, by = customer)` for each key"
        }
        ("#[saga]", "sequential" | "exclusive" | "singleton" | "one_at_a_time") => {
            "`serial` for the whole saga, or `serial(by = customer)` for each key"
        }
        ("#[saga]", "throttle" | "rate_limit" | "max_rate") => {
            "`rate(\"100/s\")` for the whole saga, or `rate(\"100/s\", by = customer)` for each key"
        }
        ("#[saga]", "queue_length" | "max_queue" | "backlog" | "capacity" | "max_pending" | "buffer") => {
            "`queue = 10_000`, the number of runs that may wait for a worker"
        }
        ("#[saga]", "id" | "rename") => "`name = \"..\"`, which the saga is stored as",
        ("#[saga]" | "#[step]" | "#[message]", "priority") => {
            "`.priority(Priority::High)` at the launch of a message"
        }
        ("#[saga]", "retention" | "keep") => {
            "`#[message(retention = \"7 days\")]`, since hierarchies are kept by their first message"
        }
        ("retention", "success" | "succeeded" | "done" | "completed") => "`committed = \"7 days\"`",
        ("retention", "compensated" | "aborted" | "undone" | "cancelled") => "`rolled_back = \"30 days\"`",
        ("#[step]", "concurrency" | "rate" | "queue") => "it at `#[saga]`, whose limits count runs",
        ("#[message]", "concurrency" | "rate") => "it at `#[saga]`, whose limits count runs",
        ("#[message]", "queue") => {
            "`topic = \"..\"` for its name, or `#[saga(queue = 10_000)]` to limit the queue of a saga"
        }
        ("#[message]", "name" | "channel" | "subject") => "`topic = \"..\"`",
        ("#[message]", "answer" | "response" | "returns") => "`reply = YourType`",
        _ => return None,
    };
    Some(hint)
}
