//! Checks of rights, and of workers and their sagas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use scoop_operate::OperateExt as _;
use scoop_runtime::Scoop;

use super::{Advice, Finding, ITEMS_MAX, Level};
use crate::fault::Fault;
use crate::output::{counted, shell_words};
use crate::times::in_words;

/// How far the clock of the server may be behind the newest events.
const CLOCK_LAG: Duration = Duration::from_secs(3);

/// Whether the clock of the server was set back.
pub(super) async fn clock_lag(scoop: &Scoop) -> Finding {
    const CHECK: &str = "clock of the server";
    let lag = scoop.health().await.clock_lag;
    if lag <= CLOCK_LAG {
        return Finding::good(CHECK, "it is not behind the recorded events");
    }
    Finding::bad(
        Level::Problem,
        CHECK,
        format!(
            "it is {} behind the newest recorded event: runs that are ready, retried or parked since then rest until it has \
             caught up, and new launches go on",
            in_words(lag)
        ),
        "set the clock of the server right, such as by NTP; after a fail-over it may be that of another host",
    )
}

/// The check for a living worker.
pub(super) const NO_WORKER: &str = "workers";

/// What the role of the connection lacks to run sagas.
pub(super) async fn rights(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let lacking = scoop.operate().lacking_rights().await?;
    Ok(vec![if lacking.is_empty() {
        Finding::good("rights", "the role of this connection may run sagas and change them")
    } else {
        Finding::bad(
            Level::Note,
            "rights",
            format!("the role of this connection may not do everything; it lacks {}", lacking.join(", ")),
            "nothing if it only reads or launches; the page about security of the guide has the rights of each role",
        )
    }])
}

/// Dead workers, handlers without a living one, living ones whose saga is retired, and different definitions of a saga.
pub(super) async fn workers(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let operate = scoop.operate();
    let (workers, handlers) = (operate.handlers().workers().await?, operate.handlers().list().await?);
    let former = operate.handlers().former().await?;
    if workers.is_empty() && handlers.is_empty() && former.is_empty() {
        return Ok(vec![Finding::bad(
            Level::Note,
            NO_WORKER,
            "no program with sagas has started here yet",
            Advice::with_command(
                "start one, or make one from the template, in a clone of the repository of Scoop:",
                "cargo generate --path template --name parcels --destination ..",
            ),
        )]);
    }
    let mut findings = vec![];
    let (living, dead): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker.is_alive);
    // What follows from it is no finding of its own: no saga has a living program, and dead workers are taken over by none.
    if living.is_empty() && !(handlers.is_empty() && dead.is_empty()) {
        let handlers = counted(handlers.len(), "handler", "handlers");
        return Ok(vec![Finding::bad(
            Level::Problem,
            NO_WORKER,
            format!("no worker lives: the runs of {handlers} wait"),
            "start a program with the sagas",
        )]);
    }
    for dead in dead {
        let (level, advice) = (Level::Warning, "nothing: a living worker takes its runs over within seconds");
        let since = crate::times::utc(dead.started_at);
        let text = format!("worker {}, started {since}, has died and is still registered", dead.identifier);
        findings.push(Finding::bad(level, NO_WORKER, text, advice));
    }
    if findings.is_empty() {
        findings.push(Finding::good(NO_WORKER, counted(living.len(), "worker lives", "workers live")));
    }
    let own = living.iter().flat_map(|worker| &worker.sagas);
    let served: BTreeSet<_> = own.map(|saga| (&*saga.topic, &*saga.handler)).collect();
    let orphans: Vec<_> =
        handlers.iter().filter(|it| !served.contains(&(&*it.topic, &*it.handler))).collect();
    for orphan in orphans.iter().take(ITEMS_MAX as usize) {
        let (topic, handler) = (&orphan.topic, &orphan.handler);
        findings.push(Finding::bad(
            Level::Warning,
            "handlers",
            format!(
                "no living program has saga `{handler}`, and the messages of topic `{topic}` wait for it"
            ),
            Advice::with_command(
                "start its program; if it will not come back:",
                format!("scoop retire {}", shell_words(&[topic, handler])),
            ),
        ));
    }
    let others = orphans.len().saturating_sub(ITEMS_MAX as usize);
    if others > 0 {
        let text = format!("{} no living program", counted(others, "more handler has", "more handlers have"));
        findings.push(Finding::bad(
            Level::Warning,
            "handlers",
            text,
            Advice::with_command("all are listed by:", "scoop topology"),
        ));
    }
    let retired: Vec<_> = former.iter().filter(|it| served.contains(&(&*it.topic, &*it.handler))).collect();
    for retired in retired.iter().take(ITEMS_MAX as usize) {
        let (topic, handler) = (&retired.topic, &retired.handler);
        findings.push(Finding::bad(
            Level::Warning,
            "handlers",
            format!(
                "saga `{handler}` is retired and has a living program: new messages of topic `{topic}` do not reach it"
            ),
            Advice::with_command(
                "nothing if a newer program has renamed it; otherwise restart the program, whose start subscribes the \
                 saga again, and then:",
                format!("scoop redeliver {}", shell_words(&[topic])),
            ),
        ));
    }
    let others = retired.len().saturating_sub(ITEMS_MAX as usize);
    if others > 0 {
        let text = format!(
            "{} a living program",
            counted(others, "more saga is retired and has", "more sagas are retired and have")
        );
        findings.push(Finding::bad(Level::Warning, "handlers", text, "restart their programs"));
    }
    if orphans.is_empty() && retired.is_empty() {
        let count = counted(handlers.len(), "handler", "handlers");
        findings.push(Finding::good("handlers", format!("each of {count} has a living program")));
    }
    // A saga of several topics counts once for each worker.
    let defined = living.iter().flat_map(|worker| {
        let sagas = worker.sagas.iter().map(|saga| (&*saga.handler, saga.definition));
        sagas.collect::<BTreeSet<_>>().into_iter().map(move |(saga, definition)| (saga, definition, *worker))
    });
    let defined = defined.map(|(saga, definition, worker)| {
        let program = worker.application.as_ref().map(|it| format!(" of {it}"));
        (saga, definition, format!("{}{}", worker.identifier, program.unwrap_or_default()))
    });
    findings.extend(definitions(defined));
    Ok(findings)
}

/// Sagas of which living workers have different definitions: each saga with its definition and the name of the worker, for each
/// worker. One worker of each definition is named.
fn definitions<'a>(served: impl Iterator<Item = (&'a str, i32, String)>) -> Vec<Finding> {
    let mut by_saga: BTreeMap<_, BTreeMap<i32, Vec<String>>> = BTreeMap::new();
    for (saga, definition, worker) in served {
        by_saga.entry(saga).or_default().entry(definition).or_default().push(worker);
    }
    let different = by_saga.iter().filter(|(_, definitions)| definitions.len() > 1);
    let findings: Vec<_> = different
        .map(|(saga, definitions)| {
            let parts = definitions.iter().map(|(definition, workers)| {
                let count = counted(workers.len(), "worker has", "workers have");
                let others = if workers.len() > 1 { ", .." } else { "" };
                let first = workers.first().map_or("", String::as_str);
                format!("{count} definition {definition} ({first}{others})")
            });
            let parts: Vec<_> = parts.collect();
            Finding::bad(
                Level::Note,
                "definitions",
                format!("living workers have different definitions of saga `{saga}`: {}", parts.join(", ")),
                "finish the deployment, so that all have the newest one; a run under another one may wait for a worker that \
                 has it. If these are two sagas, rename one of them: they share their runs, limits and schedule",
            )
        })
        .collect();
    if findings.is_empty() {
        return vec![Finding::good(
            "definitions",
            "all living workers have the same definition of each saga",
        )];
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_definitions_of_a_saga_are_a_note() {
        let served = [
            ("orders", 7, "a"),
            ("orders", 9, "b"),
            ("payments", 3, "a"),
            ("orders", 9, "c"),
            ("payments", 3, "b"),
        ];
        let served = served.map(|(saga, definition, worker)| (saga, definition, worker.to_owned()));
        let [found] = &definitions(served.iter().cloned())[..] else { panic!("one finding") };
        let text = "living workers have different definitions of saga `orders`: 1 worker has definition 7 (a), \
                    2 workers have definition 9 (b, ..)";
        assert_eq!((found.level, &*found.text), (Level::Note, text));
        let advice = found.advice.as_ref().map_or("", |advice| &*advice.text);
        assert!(advice.starts_with("finish the deployment"), "{advice}");
        assert!(advice.contains("If these are two sagas, rename one of them"), "{advice}");
        let [good] = &definitions(served.iter().filter(|(saga, ..)| *saga == "payments").cloned())[..] else {
            panic!("one finding")
        };
        assert_eq!(good.level, Level::Good);
    }
}
