//! Checks of the list of failed rollbacks.

use scoop_runtime::{FailedRollbackComparison, RunDifference, Scoop, UnmatchedFailure};

use super::{Advice, Finding, LISTED, Level};
use crate::fault::Fault;
use crate::output::counted;

/// Compares the list of failed rollbacks with the record. An operator does not see a failed rollback that the list lacks.
pub(super) async fn listed(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    const CHECK: &str = "list of failed rollbacks";
    const REBUILD: &str = "list all differences; then stop the programs with sagas, and rebuild the working set; this also \
                           rebuilds the list:";
    const REBUILD_COMMANDS: [&str; 2] = ["scoop rebuild --dry-run", "scoop rebuild"];
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
    let rebuild = || Advice { text: REBUILD.into(), commands: REBUILD_COMMANDS.map(str::to_owned).into() };
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
