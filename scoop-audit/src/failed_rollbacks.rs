//! Failed rollbacks: operators see each from its ROLLBACK_FAILED until its ROLLED_BACK, and no other.

use std::collections::BTreeSet;

use scoop_core::EventKind;

use crate::history::{Findings, Hierarchy};
use crate::{Invariant, Tables};

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    let listed: BTreeSet<_> = tables.failed_rollbacks.iter().copied().collect();
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            let failed = run.first(EventKind::RollbackFailed);
            let is_settled = run.first(EventKind::RolledBack).is_some();
            let is_listed = listed.contains(&run.id());
            let what = match failed {
                Some(failed) if !is_settled && !is_listed => {
                    format!("{} is not in the list of failed rollbacks", failed.describe())
                }
                Some(failed) if is_settled && is_listed => {
                    format!("{} is settled, and in the list of failed rollbacks", failed.describe())
                }
                None if is_listed => {
                    format!("`{}` is in the list of failed rollbacks, and has not failed", run.handler)
                }
                _ => continue,
            };
            hierarchy.find(findings, Invariant::FailedRollbacks, what);
        }
    }
}
