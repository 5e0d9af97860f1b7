//! The measures and their goals, as data.

use serde::{Deserialize, Serialize};

/// The number that a goal refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Judged {
    /// The figure divided by the reading beside it.
    Ratio,
    /// The figure itself.
    Figure,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Better {
    More,
    Less,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Goal {
    /// Starts with the name of the measure.
    pub(crate) key: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    /// The name of the ratio's base; empty if there is none.
    pub(crate) base: &'static str,
    pub(crate) judged: Judged,
    pub(crate) better: Better,
    pub(crate) least: Option<f64>,
    pub(crate) aim: Option<f64>,
}

const STEP: &str = "b_sep";

/// More is better, and the ratio counts.
const fn rate(
    key: &'static str,
    what: &'static str,
    unit: &'static str,
    base: &'static str,
    least: f64,
    aim: f64,
) -> Goal {
    let (least, aim) = (Some(least), Some(aim));
    Goal { key, what, unit, base, judged: Judged::Ratio, better: Better::More, least, aim }
}

/// Less is better, and the figure counts.
const fn cost(key: &'static str, what: &'static str, unit: &'static str, least: f64, aim: f64) -> Goal {
    let (least, aim) = (Some(least), Some(aim));
    Goal { key, what, unit, base: "", judged: Judged::Figure, better: Better::Less, least, aim }
}

/// A latency beside other work, judged by its ratio to that without.
const fn beside_idle(key: &'static str, what: &'static str) -> Goal {
    cost(key, what, "ms", 10.0, 0.0).beside("idle p99").judged_by_ratio().without_aim()
}

/// No goal; less is better.
const fn figure(key: &'static str, what: &'static str, unit: &'static str) -> Goal {
    let goal = cost(key, what, unit, 0.0, 0.0);
    Goal { least: None, aim: None, ..goal }
}

/// The processor time of a step. On a machine with other work it says more than the rate.
const fn processor(key: &'static str) -> Goal {
    figure(key, "the same: processor of server and program for each", "µs").beside(STEP)
}

/// The highest rate that could be reached.
const fn ceiling(key: &'static str, what: &'static str, unit: &'static str) -> Goal {
    figure(key, what, unit).beside(STEP).more_is_better()
}

impl Goal {
    /// Also shows the ratio to this base.
    const fn beside(mut self, base: &'static str) -> Self {
        self.base = base;
        self
    }

    /// Removes the aim, because no further improvement is intended.
    const fn without_aim(mut self) -> Self {
        self.aim = None;
        self
    }

    const fn more_is_better(mut self) -> Self {
        self.better = Better::More;
        self
    }

    /// Judges by the ratio.
    const fn judged_by_ratio(mut self) -> Self {
        self.judged = Judged::Ratio;
        self
    }
}

/// All goals, in the order of the table.
pub(crate) const GOALS: [Goal; 151] = [
    rate("B1", "3-step saga, one INSERT a step through `tx()`", "steps/s", STEP, 1.1, 1.4),
    processor("B1 processor"),
    figure("B1 protocol", "the same beside a step that is recorded in a table like ours", "steps/s")
        .beside("b_sep_protocol")
        .more_is_better(),
    rate("B2", "3-step saga that does not touch the database", "steps/s", STEP, 6.0, 12.0),
    processor("B2 processor"),
    rate("B3", "tree of 7 runs, all with `tx()`", "steps/s", STEP, 1.0, 1.3),
    processor("B3 processor"),
    rate("B4", "fan-out of 10,000 children with `tx()`", "children/s", STEP, 0.9, 1.1),
    processor("B4 processor"),
    cost("B4 resume", "last child's step to the parent's next, p99", "ms", 20.0, 10.0),
    figure("B4 resume p50", "the same, p50: fan-outs of 20 children, one after another", "ms"),
    figure("B4 resume large", "the same, of the fan-out of 10,000", "ms"),
    rate("B5", "the tree of B3 fails in its last step: forward and back", "steps/s", STEP, 0.8, 1.2),
    processor("B5 processor"),
    cost("B6 same", "idle 3-step saga, launch to committed, p50: same process", "ms", 2.5, 1.5).beside(STEP1),
    figure("B6 same p99", "the same, p99", "ms"),
    cost("B6 other", "the same, p50: worker in another process", "ms", 4.0, 2.5).beside(STEP1),
    figure("B6 other p99", "the same, p99", "ms"),
    rate(
        "B7 single",
        "launches by 16 callers, each in a transaction of its own",
        "launches/s",
        STEP,
        2.0,
        2.5,
    ),
    rate("B7 within", "launches in the caller's transaction with one INSERT", "launches/s", STEP, 1.2, 1.4),
    rate("B7 many", "launches of 1,000 messages at once", "launches/s", STEP, 15.0, 25.0),
    rate("B8", "B1 with a long history ÷ empty", "steps/s", "B1, empty", 0.95, 1.0),
    cost("B8 latency", "B6 (same process) with a long history ÷ empty", "ms", 1.05, 1.0)
        .beside("B6, empty")
        .judged_by_ratio(),
    rate("B9", "B1 on a large backlog, tables never analysed", "steps/s", STEP, 1.1, 1.4),
    cost("B10 memory", "resident memory with many sleeping runs, over none", "MB", 20.0, 0.0).without_aim(),
    cost("B10 lateness", "lateness of waking up, p99", "ms", 50.0, 0.0).without_aim(),
    figure("B10 lateness p50", "the same, p50", "ms"),
    figure("B10 lateness empty", "the same without other sleepers, p99", "ms"),
    rate("B10", "B1 beside sleeping runs ÷ without", "steps/s", "B1", 0.95, 0.0).without_aim(),
    cost("B11 queries", "idle with 1,000 handlers: transactions", "1/s", 2.0, 1.0),
    cost("B11 process", "idle with 1,000 handlers: processor of the process", "%", 0.5, 0.05),
    cost("B11 Postgres", "idle with 1,000 handlers: processor of PostgreSQL", "%", 0.5, 0.05),
    rate("B12", "B1 by 4 processes ÷ one process", "steps/s", "one process", 0.9, 1.0),
    rate("B13", "B1 for long: last minute ÷ first", "steps/s", "first minute", 0.9, 1.0),
    figure("B13 dead", "dead rows of the working set at the end ÷ after a minute", "rows")
        .beside("after a minute"),
    figure("B13 size", "size of the working set at the end ÷ after a minute", "MB").beside("after a minute"),
    cost("B14 commits", "commits of a 3-step saga with `tx()`, launch included", "commits", 4.0, 3.1),
    cost("B14 WAL", "WAL of a 3-step saga with `tx()`, launch included", "kB", 4.0, 3.0),
    figure("B14 WAL launch", "of that for the launch", "kB"),
    rate("B15", "B1 with contexts and payloads of 4 kB", "steps/s", "b_sep_4k", 0.8, 1.0),
    cost("B16 scoop", "release build of `scoop` with default features from nothing", "s", 0.75, 0.6)
        .beside("durare")
        .judged_by_ratio(),
    figure("B16 crates", "crates of `scoop` with default features, itself included", "crates"),
    cost("B16 checkout", "release build of `checkout` from nothing", "s", 100.0, 70.0),
    cost("B16 rebuild", "`checkout` again after editing one saga", "s", 5.0, 3.0),
    figure("B16 rebuild release", "the same, a release build", "s"),
    figure("B16 expansion", "expansion of a 10-step saga", "lines"),
    rate("B17", "rollback of a long loop with a child each ÷ forward", "iterations/s", "forward", 0.5, 1.0),
    rate("B17 length", "the same ÷ a tenth of the length", "iterations/s", "a tenth", 0.8, 1.0),
    rate(
        "B17 plain",
        "rollback of a long loop without children ÷ forward",
        "iterations/s",
        "forward",
        0.5,
        1.0,
    ),
    rate("B17 plain length", "the same ÷ a tenth of the length", "iterations/s", "a tenth", 0.8, 1.0),
    cost("B18 memory", "resident memory with many runs that await signals, over none", "MB", 20.0, 0.0)
        .without_aim(),
    cost("B18 start", "signal to the start of the step, p50", "ms", 1.0, 0.0)
        .beside("launch to first step")
        .judged_by_ratio()
        .without_aim(),
    cost("B18 start p99", "the same, p99", "ms", 50.0, 0.0).without_aim(),
    rate("B18", "B1 beside runs that await signals ÷ without", "steps/s", "B1", 0.95, 0.0).without_aim(),
    rate("B19 hot 16", "commands: one entity, 16 callers", "decisions/s", BETTER, 5e+00, 5e+00).without_aim(),
    figure("B19 hot 16 optimistic", "the same by a version and retries", "decisions/s").more_is_better(),
    figure("B19 hot 16 pessimistic", "the same by `SELECT .. FOR UPDATE`", "decisions/s").more_is_better(),
    figure("B19 hot 16 processor", "commands: processor of server and program for each", "µs").beside(BETTER),
    figure("B19 hot 16 p99", "commands: sent until decided, p99", "ms").beside(BETTER),
    figure("B19 hot 16 conflicts", "optimistic: failed attempts for each decision", "attempts"),
    rate("B19 hot 200", "commands: one entity, 200 callers", "decisions/s", BETTER, 5e+00, 5e+00)
        .without_aim(),
    figure("B19 hot 200 optimistic", "the same by a version and retries", "decisions/s").more_is_better(),
    figure("B19 hot 200 pessimistic", "the same by `SELECT .. FOR UPDATE`", "decisions/s").more_is_better(),
    figure("B19 hot 200 processor", "commands: processor of server and program for each", "µs")
        .beside(BETTER),
    figure("B19 hot 200 p99", "commands: sent until decided, p99", "ms").beside(BETTER),
    figure("B19 hot 200 conflicts", "optimistic: failed attempts for each decision", "attempts"),
    rate("B19 hot 1000", "commands: one entity, 1,000 callers", "decisions/s", BETTER, 5e+00, 5e+00)
        .without_aim(),
    figure("B19 hot 1000 optimistic", "the same by a version and retries", "decisions/s").more_is_better(),
    figure("B19 hot 1000 pessimistic", "the same by `SELECT .. FOR UPDATE`", "decisions/s").more_is_better(),
    figure("B19 hot 1000 processor", "commands: processor of server and program for each", "µs")
        .beside(BETTER),
    figure("B19 hot 1000 p99", "commands: sent until decided, p99", "ms").beside(BETTER),
    figure("B19 hot 1000 conflicts", "optimistic: failed attempts for each decision", "attempts"),
    rate("B19 spread", "commands: 10,000 entities, 200 callers", "decisions/s", BETTER, 1e+00, 1e+00)
        .without_aim(),
    figure("B19 spread optimistic", "the same by a version and retries", "decisions/s").more_is_better(),
    figure("B19 spread pessimistic", "the same by `SELECT .. FOR UPDATE`", "decisions/s").more_is_better(),
    figure("B19 spread processor", "commands: processor of server and program for each", "µs").beside(BETTER),
    figure("B19 spread p99", "commands: sent until decided, p99", "ms").beside(BETTER),
    figure("B19 spread conflicts", "optimistic: failed attempts for each decision", "attempts"),
    rate(
        "B20",
        "a run that continues as new: its last tenth ÷ the first",
        "executions/s",
        "the first",
        0.9,
        1.0,
    ),
    cost(
        "B20 memory",
        "resident memory after its last hundredth, over that after its first",
        "MB",
        20.0,
        0.0,
    )
    .without_aim(),
    figure("B20 claim", "lateness of its claim after a sleep, p50", "ms").beside("a hundredth"),
    figure("B20 rollback", "from a failure to its end", "ms").beside("a hundredth"),
    figure("B20 tree", "its `tree()`, p50", "ms").beside("a hundredth"),
    figure("B21 join", "joined set of two messages: processor of server and program", "µs")
        .beside("a run for each message"),
    figure(
        "B21 errors",
        "failed hierarchy with a handler of `Failed`: processor of server and program",
        "µs",
    )
    .beside("without a handler"),
    cost("B22", "a page of a list of runs, with many runs that have ended, p99", "ms", 50.0, 0.0)
        .without_aim(),
    figure("B22 p50", "the same, p50", "ms"),
    cost("B22 asleep", "the same, with many runs that sleep, p99", "ms", 50.0, 0.0).without_aim(),
    figure("B22 asleep p50", "the same, p50", "ms"),
    rate("B23", "B1 while finished hierarchies are deleted ÷ without", "steps/s", "B1, all kept", 0.95, 0.0)
        .without_aim(),
    cost("B23 size", "size of all tables after a simulated month ÷ after twenty days", "MB", 1.1, 0.0)
        .beside("after twenty days")
        .judged_by_ratio()
        .without_aim(),
    figure("B23 dead", "dead rows of all tables then", "rows").beside("after twenty days"),
    figure("B23 kept", "hierarchies kept then ÷ those of seven days", "hierarchies").beside("seven days"),
    rate("B24 B1", "B1 with metrics, spans and OpenTelemetry ÷ without", "steps/s", "B1", 0.97, 1.0),
    figure("B24 B1 processor", "the same: processor of server and program for a step", "µs").beside("B1"),
    figure("B24 B1 spans", "the same: exported spans for a step", "spans").more_is_better(),
    rate(
        "B24 B1 sampled",
        "B1 with metrics and OpenTelemetry, one trace of a hundred sampled ÷ without",
        "steps/s",
        "B1",
        0.97,
        1.0,
    ),
    figure("B24 B1 sampled processor", "the same: processor of server and program for a step", "µs")
        .beside("B1"),
    figure("B24 B1 sampled spans", "the same: exported spans for a step", "spans"),
    rate("B24 B2", "B2 with metrics, spans and OpenTelemetry ÷ without", "steps/s", "B2", 0.97, 1.0),
    figure("B24 B2 processor", "the same: processor of server and program for a step", "µs").beside("B2"),
    figure("B24 B2 spans", "the same: exported spans for a step", "spans").more_is_better(),
    figure("B24 spans alone", "as many spans by OpenTelemetry alone: processor for a step", "µs")
        .beside("3 % of a step of B2"),
    rate(
        "B24 B2 sampled",
        "B2 with metrics and OpenTelemetry, one trace of a hundred sampled ÷ without",
        "steps/s",
        "B2",
        0.97,
        1.0,
    ),
    figure("B24 B2 sampled processor", "the same: processor of server and program for a step", "µs")
        .beside("B2"),
    figure("B24 B2 sampled spans", "the same: exported spans for a step", "spans"),
    cost(
        "B22 web",
        "the slowest page of the web page, with many runs that have ended, p50",
        "ms",
        150.0,
        0.0,
    )
    .without_aim(),
    cost("B22 web asleep", "the same, with many runs that sleep", "ms", 150.0, 0.0).without_aim(),
    figure("B25", "B1 with a limit for the saga that is not reached ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    figure("B25 reached", "B1 with a limit for the saga that is reached ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    figure("B25 by key", "B1 with limits by key that are reached ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    figure("B25 rate", "B1 with a rate that is not reached ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    figure("B25 rate by key", "B1 with a rate for each of 100 keys that is not reached ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    figure("B25 priority", "B1 with a third of the runs at each priority ÷ without", "steps/s")
        .beside("B1")
        .more_is_better(),
    rate("B25 pause", "B1 beside a paused handler with pending runs ÷ without", "steps/s", "B1", 0.95, 0.0)
        .without_aim(),
    figure("B25 queue", "launches with a limit of the queue that is not reached ÷ without", "launches/s")
        .beside("B7 single")
        .more_is_better(),
    rate(
        "B26",
        "one-step sagas at a steady rate beside an open snapshot ÷ without",
        "runs/s",
        "without",
        0.95,
        0.0,
    )
    .without_aim(),
    cost("B26 p99", "the same: launch to the start of the step, p99", "ms", 2.0, 0.0)
        .beside("without")
        .judged_by_ratio()
        .without_aim(),
    cost("B26 blocks", "the same: blocks for each run, in the last minute", "blocks", 1.1, 0.0)
        .beside("first minute")
        .judged_by_ratio()
        .without_aim(),
    rate(
        "B26 queries",
        "the same beside three overlapping queries of two minutes each ÷ without",
        "runs/s",
        "without",
        0.95,
        0.0,
    )
    .without_aim(),
    cost("B26 queries p99", "the same: launch to the start of the step, p99", "ms", 2.0, 0.0)
        .beside("without")
        .judged_by_ratio()
        .without_aim(),
    cost("B26 queries blocks", "the same: blocks for each run, in the last minute", "blocks", 1.1, 0.0)
        .beside("first minute")
        .judged_by_ratio()
        .without_aim(),
    cost(
        "B27",
        "a page of runs that are found by fields, with many runs that have ended, p99",
        "ms",
        50.0,
        0.0,
    )
    .without_aim(),
    figure("B27 p50", "the same, p50", "ms"),
    rate(
        "B26 by key",
        "the same with limits by key, beside an open snapshot ÷ without",
        "runs/s",
        "without",
        0.95,
        0.0,
    )
    .without_aim(),
    cost("B26 by key p99", "the same: launch to the start of the step, p99", "ms", 2.0, 0.0)
        .beside("without")
        .judged_by_ratio()
        .without_aim(),
    cost("B26 by key blocks", "the same: blocks for each run, in the last minute", "blocks", 1.1, 0.0)
        .beside("first minute")
        .judged_by_ratio()
        .without_aim(),
    rate(
        "B26 by key queries",
        "the same beside three overlapping queries ÷ without",
        "runs/s",
        "without",
        0.95,
        0.0,
    )
    .without_aim(),
    cost("B26 by key queries p99", "the same: launch to the start of the step, p99", "ms", 2.0, 0.0)
        .beside("without")
        .judged_by_ratio()
        .without_aim(),
    cost(
        "B26 by key queries blocks",
        "the same: blocks for each run, in the last minute",
        "blocks",
        1.1,
        0.0,
    )
    .beside("first minute")
    .judged_by_ratio()
    .without_aim(),
    figure("F1 idle", "lone 3-step saga with `tx()`, launch to committed, nothing else to do, p99", "ms"),
    beside_idle("F1", "the same beside a backlog of another handler, p99"),
    figure("F1 p50", "the same, p50", "ms").beside("idle p50"),
    beside_idle("F1 limited", "the same beside a backlog with limits by key that are reached, p99"),
    beside_idle("F1 concurrency", "the same beside a backlog with a limit that is reached, p99"),
    beside_idle("F1 rate", "the same beside a backlog with rates by key that are not reached, p99"),
    beside_idle("F1 priority", "the same beside a backlog of all priorities, p99"),
    beside_idle(
        "F1 both",
        "a lone saga with a limit beside a backlog with limits by key that are reached, p99",
    ),
    beside_idle("F1 pause", "the lone saga beside a backlog of a paused saga, p99"),
    figure("F1 count", "how many of them there were", "sagas").more_is_better(),
    beside_idle("F2", "the same beside a fan-out of 10,000 children, p99"),
    figure("F2 p50", "the same, p50", "ms").beside("idle p50"),
    beside_idle(
        "F2 limited",
        "the same beside a fan-out of 10,000 children with limits by key that are reached, p99",
    ),
    figure("F2 count", "how many of them there were", "sagas").more_is_better(),
    ceiling(
        "ceiling B1",
        "what pgbench reaches that writes the rows of B1, and does nothing else",
        "steps/s",
    ),
    ceiling("ceiling B3", "the same for B3", "steps/s"),
    ceiling("ceiling B4", "the same for B4", "children/s"),
    ceiling("ceiling B5", "the same for B5", "steps/s"),
    ceiling("ceiling B7 within", "the same for B7 within", "launches/s"),
    ceiling("ceiling B7 many", "the same for B7 many", "launches/s"),
    figure("limit", "pgbench, one saga step as six round trips, 16 clients", "tx/s").more_is_better(),
];

/// The base of latencies: one step by one client.
const STEP1: &str = "a b_sep of 1 client";

/// The base of decisions.
const BETTER: &str = "the better other way";

/// The goal of that key.
pub(crate) fn find(key: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_key_of_its_own() {
        for (at, goal) in GOALS.iter().enumerate() {
            assert!(GOALS[..at].iter().all(|other| other.key != goal.key), "{}", goal.key);
        }
    }

    #[test]
    fn an_aim_is_at_least_the_least() {
        for goal in &GOALS {
            if let (Some(least), Some(aim)) = (goal.least, goal.aim) {
                let is_harder = if goal.better == Better::More { aim >= least } else { aim <= least };
                assert!(is_harder, "{}", goal.key);
            }
        }
    }

    #[test]
    fn goal_judged_by_a_ratio_has_a_base() {
        for goal in &GOALS {
            let needs_one = goal.judged == Judged::Ratio && goal.least.is_some();
            assert!(!needs_one || !goal.base.is_empty(), "{}", goal.key);
        }
    }
}
