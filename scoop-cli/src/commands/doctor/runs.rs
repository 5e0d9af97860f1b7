//! Checks of unfinished runs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use scoop_operate::FailedRollback;
use scoop_operate::{OperateExt as _, WaitKind};
use scoop_runtime::{RunPhase, RunRequest, Scoop};

use super::{Advice, Finding, ITEMS_MAX, Level};
use crate::commands::counts;
use crate::commands::run_requests::repair_commands;
use crate::fault::Fault;
use crate::output::{counted, shell_words};
use crate::times::in_words;

/// How long a run that is due may wait for a slot.
const LATE_AFTER: Duration = Duration::from_secs(60);

/// How many of these runs are counted.
const LATE_COUNTED: usize = 200;

/// How many pages of unfinished runs are looked through for them, and the size of one: the runs that pass the filters.
const LATE_PAGES: usize = 20;
const LATE_PAGE: usize = 500;

/// Of how many sagas in each state runs are counted.
const SAGAS_COUNTED: usize = 1_000;

/// How many pages of failed rollbacks are looked through for those that await an operator, and the size of one.
const FAILED_PAGES: usize = 20;
const FAILED_PAGE: u32 = 200;

/// Failed rollbacks, stuck runs, and runs that wait for long. If no worker lives, no finding says so of each run.
pub(super) async fn unfinished(scoop: &Scoop, none_lives: bool) -> Result<Vec<Finding>, Fault> {
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
                failed.failure.rollback_summary()
            ),
            Advice {
                text: "fix the cause, then run one of:".into(),
                commands: repair_commands(failed.id(), failed.requests()),
            },
        )
    }));
    let counted = scoop.operate().runs().count().sagas(SAGAS_COUNTED).await?;
    if !counted.is_complete {
        findings.push(Finding::bad(
            Level::Note,
            "sagas with runs",
            format!(
                "runs of {SAGAS_COUNTED} sagas or more are in the same state; of each state, only those of the first \
                 {SAGAS_COUNTED} are counted here"
            ),
            Advice::with_command("all are counted by:", "scoop counts"),
        ));
    }
    if counted.unfinished_in(RunPhase::RollbackFailed) > ITEMS_MAX as usize {
        findings.push(Finding::bad(
            Level::Problem,
            "failed rollbacks",
            format!(
                "the rollbacks of {} runs failed, and no operator has settled them",
                counts::shown(
                    counted.unfinished.iter().filter(|count| count.phase == RunPhase::RollbackFailed)
                )
            ),
            Advice::with_command("fix the causes; all are listed by:", "scoop runs --state rollback-failed"),
        ));
    }
    if undecided.is_empty() && is_complete {
        findings.push(Finding::good("failed rollbacks", "no rollback awaits an operator"));
    }
    let stuck = scoop.operate().failures().stuck().limit(ITEMS_MAX).await?;
    let (stuck, abandoned): (Vec<_>, Vec<_>) = stuck.iter().partition(|it| it.phase == RunPhase::Stuck);
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
    findings.extend(abandoned.iter().filter(|_| !none_lives).map(|run| {
        Finding::bad(
            Level::Problem,
            "runs without a program",
            format!("run {} of `{}` is {}: {}", run.id(), run.handler, run.phase, run.reason),
            "start a program that has the saga; it goes on then",
        )
    }));
    findings.extend(unbounded_waits(scoop).await?);
    if counted.unfinished_in(RunPhase::Stuck) > ITEMS_MAX as usize {
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

/// The first rollbacks that failed by themselves, up to [`LISTED`], and whether all failed rollbacks were looked at. The list has the
/// newest first: a rollback comes after those of its ancestors, which failed because of it.
async fn undecided_rollbacks(scoop: &Scoop) -> Result<(Vec<FailedRollback>, bool), Fault> {
    let (mut undecided, mut cursor) = (vec![], None);
    for _ in 0..FAILED_PAGES {
        let failed = scoop.operate().failures().list().limit(FAILED_PAGE).after_cursor(cursor).await?;
        cursor = failed.last().map(FailedRollback::cursor);
        undecided.extend(failed.into_iter().filter(|it| it.failed_below.is_empty()));
        undecided.truncate(ITEMS_MAX as usize);
        if cursor.is_none() || undecided.len() >= ITEMS_MAX as usize {
            break;
        }
    }
    Ok((undecided, cursor.is_none()))
}

/// Sagas with runs that have been due for long, although a living program has them and nothing else holds them up; and whether
/// all unfinished runs were looked at.
async fn late(scoop: &Scoop, now: SystemTime) -> Result<(Vec<Finding>, bool), Fault> {
    let query =
        scoop.operate().runs().list().waiting_for(WaitKind::Slot).until(now - LATE_AFTER).page(LATE_PAGE);
    let (mut due, mut cursor) = (vec![], None);
    for _ in 0..LATE_PAGES {
        // A page reads a limited number of runs, so it can be empty before the last one.
        let page = query.clone().after(cursor).await?;
        due.extend(page.runs);
        cursor = page.next;
        if cursor.is_none() || due.len() >= LATE_COUNTED {
            break;
        }
    }
    let mut late: BTreeMap<&str, (usize, SystemTime)> = BTreeMap::new();
    for run in &due {
        let (count, oldest) = late.entry(&run.handler).or_insert((0, run.since));
        (*count, *oldest) = (*count + 1, run.since.min(*oldest));
    }
    let or_more = if cursor.is_some() { " (and others)" } else { "" };
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
    Ok((sagas.collect(), cursor.is_none()))
}

/// Runs that wait for the program of a retired handler, and have no deadline: nothing else ends that.
async fn unbounded_waits(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let mut findings = vec![];
    for former in scoop.operate().handlers().former().limit(ITEMS_MAX).await? {
        let (topic, handler) = (&former.topic, &former.handler);
        let runs = scoop.operate().runs().list().topic(topic).handler(handler).waiting_for(WaitKind::Program);
        let page = runs.page(LATE_PAGE).await?;
        let unbounded =
            page.runs.iter().filter(|run| run.deadline.is_none() && run.phase != RunPhase::Stuck).count();
        if unbounded > 0 {
            let more = if page.next.is_some() { " or more" } else { "" };
            let runs = counted(unbounded, "run", "runs");
            findings.push(Finding::bad(
                Level::Problem,
                "waits without an end",
                format!(
                    "{runs}{more} of `{handler}` on topic `{topic}`: the handler is retired, no living program has it, and no \
                     deadline ends the wait"
                ),
                Advice::with_command(
                    "start a program that has the saga, or cancel what waits; those that have not begun are dropped by:",
                    format!("scoop retire {} --drop-pending", shell_words(&[topic, handler])),
                ),
            ));
        }
    }
    Ok(findings)
}
