//! Checks of pauses, limits of queues, and retention.

use scoop_operate::OperateExt as _;
use scoop_runtime::Scoop;

use super::{Advice, Finding, ITEMS_MAX, Level};
use crate::commands::pause::options;
use crate::fault::Fault;
use crate::output::counted;

/// What is paused: nothing resumes a pause without a limit by itself.
pub(super) async fn paused(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let pauses = scoop.operate().pauses().list().await?;
    if pauses.is_empty() {
        return Ok(vec![Finding::good("pauses", "nothing is paused")]);
    }
    let findings = pauses.iter().take(ITEMS_MAX as usize).map(|pause| {
        let resume = format!("scoop resume {}", options(&pause.target));
        let (level, advice) = if pause.until.is_some() {
            (Level::Note, "nothing: it ends by itself; to end it now:")
        } else {
            (Level::Warning, "when the reason is gone:")
        };
        Finding::bad(level, "pauses", pause.to_string(), Advice::with_command(advice, resume))
    });
    let mut findings: Vec<_> = findings.collect();
    let others = pauses.get(ITEMS_MAX as usize..).unwrap_or_default();
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

/// Queues with a limit that refuse launches soon.
pub(super) async fn queues(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let queues = scoop.operate().handlers().queues().await?;
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

/// Finished hierarchies that programs could not delete.
pub(super) async fn undeletable(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let undeletable = scoop.operate().retention().undeletable().limit(ITEMS_MAX).await?;
    if undeletable.is_empty() {
        return Ok(vec![Finding::good("retention", "each finished hierarchy could be deleted in its time")]);
    }
    let findings = undeletable.iter().map(|undeletable| {
        let advice =
            "remove the reason, such as a foreign key to a table of scoop or an error of the archive";
        Finding::bad(Level::Warning, "retention", undeletable.to_string(), advice)
    });
    Ok(findings.collect())
}
