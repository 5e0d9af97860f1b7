//! Executions: numbered without gap, each from the step that ends the one before.

use std::collections::BTreeMap;

use crate::history::{Findings, Hierarchy};
use crate::{Invariant, LoggedExecution, Tables};

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    let mut by_run: BTreeMap<_, Vec<&LoggedExecution>> = BTreeMap::new();
    for execution in &tables.executions {
        by_run.entry(execution.run).or_default().push(execution);
    }
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            let mut executions = by_run.remove(&run.id()).unwrap_or_default();
            executions.sort_by_key(|execution| execution.number);
            let windows = run.forward();
            let cuts: Vec<_> = windows.iter().filter(|window| window.closed.event.continues_as_new).collect();
            if cuts.len() != executions.len() {
                let what = format!(
                    "`{}` continues as new {} times and has {} executions after the first one",
                    run.handler,
                    cuts.len(),
                    executions.len()
                );
                hierarchy.find(findings, Invariant::Executions, what);
                continue;
            }
            for ((number, execution), cut) in (1..).zip(executions).zip(cuts) {
                if execution.number != number || execution.began_at != cut.closed.event.at {
                    let what = format!("execution {number} does not begin with {}", cut.closed.describe());
                    hierarchy.find(findings, Invariant::Executions, what);
                }
            }
        }
    }
}
