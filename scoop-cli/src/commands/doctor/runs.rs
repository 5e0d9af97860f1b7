//! Checks of rights, workers and unfinished runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use scoop_runtime::{
    FailedCompensation, FailedRollbackComparison, RepairStatus, RunDifference, RunPhase, RunRequest, Scoop,
    UnmatchedFailure, WaitKind,
};

use super::{Advice, Finding, Level};
use crate::commands::counts;
use crate::commands::pause::options;
use crate::commands::run_requests::repair_commands;
use crate::fault::Fault;
use crate::output::{counted, shell_words};
use crate::times::in_words;

/// How many runs of a kind are listed by their ids, and how many pauses and handlers by their names.
const LISTED: u32 = 10;

/// How long a run that is due may wait for a slot.
const LATE_AFTER: Duration = Duration::from_secs(60);

/// How many of these runs are counted.
const LATE_COUNTED: usize = 200;

/// How many pages of unfinished runs are looked through for them, and the size of one: the runs that pass the filters.
const LATE_PAGES: usize = 20;
const LATE_PAGE: usize = 500;

/// How many pages of failed rollbacks are looked through for those that await an operator, and the size of one.
const FAILED_PAGES: usize = 20;
const FAILED_PAGE: u32 = 200;

/// What the role of the connection lacks to run sagas.
pub(super) async fn rights(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let lacking = scoop.lacking_rights().await?;
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
    let (workers, handlers) = (scoop.workers().await?, scoop.handlers().await?);
    let mut findings = vec![];
    let (living, dead): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker.is_alive);
    for dead in dead {
        let (level, advice) = if living.is_empty() {
            (Level::Problem, "start a program with sagas: its runs wait for one that takes them over")
        } else {
            (Level::Warning, "nothing: a living worker takes its runs over within seconds")
        };
        let since = crate::times::utc(dead.started_at);
        let text = format!("worker {}, started {since}, has died and is still registered", dead.identifier);
        findings.push(Finding::bad(level, "workers", text, advice));
    }
    if findings.is_empty() {
        findings.push(Finding::good("workers", counted(living.len(), "worker lives", "workers live")));
    }
    let own = living.iter().flat_map(|worker| &worker.sagas);
    let served: BTreeSet<_> = own.map(|saga| (&*saga.topic, &*saga.handler)).collect();
    let orphans: Vec<_> =
        handlers.iter().filter(|it| !served.contains(&(&*it.topic, &*it.handler))).collect();
    for orphan in orphans.iter().take(LISTED as usize) {
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
    let others = orphans.len().saturating_sub(LISTED as usize);
    if others > 0 {
        let text = format!("{} no living program", counted(others, "more handler has", "more handlers have"));
        findings.push(Finding::bad(
            Level::Warning,
            "handlers",
            text,
            Advice::with_command("all are listed by:", "scoop topology"),
        ));
    }
    let former = scoop.former_handlers().await?;
    let retired: Vec<_> = former.iter().filter(|it| served.contains(&(&*it.topic, &*it.handler))).collect();
    for retired in retired.iter().take(LISTED as usize) {
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
    let others = retired.len().saturating_sub(LISTED as usize);
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

/// What is paused: nothing resumes a pause without a limit by itself.
pub(super) async fn paused(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let pauses = scoop.pauses().await?;
    if pauses.is_empty() {
        return Ok(vec![Finding::good("pauses", "nothing is paused")]);
    }
    let findings = pauses.iter().take(LISTED as usize).map(|pause| {
        let resume = format!("scoop resume {}", options(&pause.target));
        let (level, advice) = if pause.until.is_some() {
            (Level::Note, "nothing: it ends by itself; to end it now:")
        } else {
            (Level::Warning, "when the reason is gone:")
        };
        Finding::bad(level, "pauses", pause.to_string(), Advice::with_command(advice, resume))
    });
    let mut findings: Vec<_> = findings.collect();
    let others = pauses.get(LISTED as usize..).unwrap_or_default();
    if !others.is_empty() {
        let level =
            if others.iter().all(|pause| pause.until.is_some()) { Level::Note } else { Level::Warning };
        let text = format!("{} in force", counted(others.len(), "more pause is", "more pauses are"));
        findings.push(Finding::bad(
            level,
            "pauses",
            text,
            Advice::with_command("all are listed by:", "scoop pauses"),
        ));
    }
    Ok(findings)
}

/// Finished hierarchies that programs could not delete.
pub(super) async fn undeletable(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let kept = scoop.undeletable().limit(LISTED).await?;
    if kept.is_empty() {
        return Ok(vec![Finding::good("retention", "each finished hierarchy could be deleted in its time")]);
    }
    let findings = kept.iter().map(|kept| {
        let advice =
            "remove the reason, such as a foreign key to a table of scoop or an error of the archive";
        Finding::bad(Level::Warning, "retention", kept.to_string(), advice)
    });
    Ok(findings.collect())
}

/// Queues with a limit that refuse launches soon.
pub(super) async fn queues(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let queues = scoop.queue_lengths().await?;
    let full = queues.iter().filter(|queue| queue.is_nearly_full());
    let findings: Vec<_> = full
        .map(|queue| {
            Finding::bad(
                Level::Warning,
                "queue limits",
                format!("{queue}: launches beyond that are refused"),
                "end a pause of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`",
            )
        })
        .collect();
    Ok(if findings.is_empty() {
        let limited = counted(queues.len(), "queue has", "queues have");
        vec![Finding::good("queue limits", format!("{limited} a limit, and none is nearly full"))]
    } else {
        findings
    })
}

/// Compares the list of failed rollbacks with the record. An operator does not see a failed rollback that the list lacks.
pub(super) async fn listed(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    const CHECK: &str = "list of failed rollbacks";
    let compared = scoop.compare_failed_rollbacks().await?;
    let or_more = if compared.different.len() >= FailedRollbackComparison::LIMIT { " or more" } else { "" };
    let (unlisted, others): (Vec<_>, Vec<_>) =
        compared.different.iter().partition(|difference| difference.is_unlisted_failure());
    let runs = |different: &[&RunDifference]| {
        let first = different.iter().take(LISTED as usize).map(|it| {
            let run = it.run.map_or_else(|| it.message_id.to_string(), |run| run.to_string());
            format!("{run} of `{}`", it.handler)
        });
        let more = if different.len() > LISTED as usize { ", .." } else { "" };
        format!("{}{more}", first.collect::<Vec<_>>().join(", "))
    };
    let rebuild = || {
        Advice {
        text: "list all differences; then stop the programs with sagas, and rebuild the working set, which makes the list anew:".into(),
        commands: ["scoop rebuild --dry-run", "scoop rebuild"].map(str::to_owned).into(),
    }
    };
    let mut findings = vec![];
    if !unlisted.is_empty() {
        let count = counted(unlisted.len(), "failed rollback is", "failed rollbacks are");
        let text =
            format!("{count}{or_more} missing in the list that operators see: run {}", runs(&unlisted));
        findings.push(Finding::bad(Level::Problem, CHECK, text, rebuild()));
    }
    if !others.is_empty() {
        let count = counted(others.len(), "entry is", "entries are");
        let text = format!("{count}{or_more} settled, or not as recorded, of run {}", runs(&others));
        findings.push(Finding::bad(Level::Warning, CHECK, text, rebuild()));
    }
    if findings.is_empty() {
        let count = counted(
            usize::try_from(compared.compared).unwrap_or(usize::MAX),
            "failed rollback",
            "failed rollbacks",
        );
        findings.push(Finding::good(CHECK, format!("{count} compared with the record, none differs")));
    }
    findings.extend(unmatched(&compared.unmatched));
    Ok(findings)
}

/// Repeated failures that do not fit the record: trees and lists may lack them, and deletions may leave them.
fn unmatched(failures: &[UnmatchedFailure]) -> Vec<Finding> {
    const CHECK: &str = "repeated failures";
    const ADVICE: &str = "as the owner of the tables, correct the row of `repeated_failure` by the ROLLBACK_FAILED of its \
                          run, delete it if its run has none, or give it another id if an event has its id";
    if failures.is_empty() {
        return vec![Finding::good(CHECK, "each of the newest belongs to a failed rollback")];
    }
    let named = failures.iter().take(LISTED as usize);
    let mut findings: Vec<_> =
        named.map(|it| Finding::bad(Level::Warning, CHECK, it.to_string(), ADVICE)).collect();
    let others = failures.len().saturating_sub(LISTED as usize);
    if others > 0 {
        let or_more = if failures.len() >= FailedRollbackComparison::LIMIT { " or more" } else { "" };
        let count = counted(others, "other", "others");
        let text = format!("{count}{or_more} of the newest repeated failures do not fit the record");
        findings.push(Finding::bad(Level::Warning, CHECK, text, ADVICE));
    }
    findings
}

/// Failed rollbacks, stuck runs, and runs that wait for long.
pub(super) async fn unfinished(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let mut findings = vec![];
    let (undecided, is_complete) = undecided_rollbacks(scoop).await?;
    findings.extend(undecided.iter().map(|failed| {
        Finding::bad(
            Level::Problem,
            "failed rollbacks",
            format!(
                "the rollback of run {} of `{}` failed in {}: {}",
                failed.id(),
                failed.handler,
                failed.step,
                failed.failure.summary()
            ),
            Advice {
                text: "mend the reason, then one of:".into(),
                commands: repair_commands(failed.id(), failed.requests()),
            },
        )
    }));
    let counted = scoop.counts().await?;
    let failed = [RunPhase::RollbackFailed, RunPhase::AwaitingOperator];
    if failed.iter().map(|phase| counted.unfinished_in(*phase)).sum::<usize>() > LISTED as usize {
        findings.push(Finding::bad(
            Level::Problem,
            "failed rollbacks",
            format!(
                "the rollbacks of {} runs failed, and no operator has settled them",
                counts::shown(counted.unfinished.iter().filter(|count| failed.contains(&count.phase)))
            ),
            Advice::with_command(
                "mend the reasons; all are listed by:",
                "scoop runs --state rollback-failed --state awaiting-operator",
            ),
        ));
    }
    if undecided.is_empty() && is_complete {
        findings.push(Finding::good("failed rollbacks", "no rollback awaits an operator"));
    }
    let stuck = scoop.stuck_runs().limit(LISTED).await?;
    findings.extend(stuck.iter().map(|stuck| {
        Finding::bad(
            Level::Problem,
            "stuck runs",
            format!("run {} of `{}` is stuck: {}", stuck.id(), stuck.handler, stuck.reason),
            if stuck.requests().any(|request| request == RunRequest::Retry) {
                Advice::with_command(
                    if stuck.needs_retry {
                        "find out from the logs why its attempts end, then:"
                    } else {
                        "start a program that can continue it; it is retried then, or by:"
                    },
                    format!("scoop retry {}", stuck.id()),
                )
            } else {
                "start a program that has the saga; it goes on then".into()
            },
        )
    }));
    if counted.unfinished_in(RunPhase::Stuck) > LISTED as usize {
        let all = counted.unfinished.iter().filter(|count| count.phase == RunPhase::Stuck);
        findings.push(Finding::bad(
            Level::Problem,
            "stuck runs",
            format!("{} runs are stuck", counts::shown(all)),
            Advice::with_command("all are listed by:", "scoop runs --state stuck"),
        ));
    }
    if stuck.is_empty() {
        findings.push(Finding::good("stuck runs", "no run is stuck"));
    }
    let (late, is_complete) = late(scoop, counted.read_at).await?;
    if late.is_empty() {
        let unfinished = counts::shown(&counted.unfinished);
        findings.push(if is_complete {
            Finding::good(
                "late runs",
                format!("{unfinished} runs are unfinished, and none that is due waits for long"),
            )
        } else {
            Finding::bad(
                Level::Note,
                "late runs",
                format!(
                    "{unfinished} runs are unfinished: none of the newest that is due waits for long, and the others were \
                     not looked at"
                ),
                Advice::with_command("the oldest run of each saga and state is shown by:", "scoop counts"),
            )
        });
    }
    findings.extend(late);
    Ok(findings)
}

/// The first undecided rollbacks, up to [`LISTED`], and whether all failed rollbacks were looked at. The list has the newest
/// first: a rollback comes after those of its ancestors, which wait for it.
async fn undecided_rollbacks(scoop: &Scoop) -> Result<(Vec<FailedCompensation>, bool), Fault> {
    let (mut undecided, mut place) = (vec![], None);
    for _ in 0..FAILED_PAGES {
        let failed = scoop.failed_compensations().limit(FAILED_PAGE).after_cursor(place).await?;
        place = failed.last().map(FailedCompensation::cursor);
        undecided.extend(failed.into_iter().filter(|it| it.status == RepairStatus::Undecided));
        undecided.truncate(LISTED as usize);
        if place.is_none() || undecided.len() >= LISTED as usize {
            break;
        }
    }
    Ok((undecided, place.is_none()))
}

/// Sagas with runs that have been due for long, although a living program has them and nothing else holds them up; and whether
/// all unfinished runs were looked at.
async fn late(scoop: &Scoop, now: SystemTime) -> Result<(Vec<Finding>, bool), Fault> {
    let query = scoop.runs().waiting_for(WaitKind::Slot).until(now - LATE_AFTER).page(LATE_PAGE);
    let (mut due, mut place) = (vec![], None);
    for _ in 0..LATE_PAGES {
        // A page reads a limited number of runs, so it can be empty before the last one.
        let page = query.clone().after(place).await?;
        due.extend(page.runs);
        place = page.next;
        if place.is_none() || due.len() >= LATE_COUNTED {
            break;
        }
    }
    let mut late: BTreeMap<&str, (usize, SystemTime)> = BTreeMap::new();
    for run in &due {
        let (count, oldest) = late.entry(&run.handler).or_insert((0, run.since));
        (*count, *oldest) = (*count + 1, run.since.min(*oldest));
    }
    let or_more = if place.is_some() { " (and others)" } else { "" };
    let sagas = late.into_iter().map(|(saga, (count, oldest))| {
        let waits = now.duration_since(oldest).unwrap_or_default();
        Finding::bad(
            Level::Warning,
            "late runs",
            format!(
                "saga `{saga}`: {} for a slot{or_more}, the longest for {}",
                counted(count, "run is due and waits", "runs are due and wait"),
                in_words(waits)
            ),
            "raise the concurrency of its programs or start more; `scoop explain` says what a run waits for",
        )
    });
    Ok((sagas.collect(), place.is_none()))
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
