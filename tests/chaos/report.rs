//! The result of a whole run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::books::Findings;
use crate::caller::Calls;
use crate::client::Book;
use crate::nemesis::Fault;
use crate::record::End;

/// How many of each kind of finding are shown in full.
const SHOWN_MAX: usize = 8;

/// The figures, and the violations.
pub(crate) struct Report {
    pub(crate) findings: Findings,
    pub(crate) book: Book,
    pub(crate) calls: Calls,
    pub(crate) faults: BTreeMap<Fault, usize>,
    /// The workers that ended by themselves.
    pub(crate) deserters: usize,
    pub(crate) took: Duration,
    /// From the last fault to the end of all work.
    pub(crate) drained: Duration,
    pub(crate) longest_recovery: Duration,
}

impl Report {
    /// Whether nothing is wrong.
    pub(crate) fn is_clean(&self) -> bool {
        let Findings { losses, doubles, violations, .. } = &self.findings;
        losses.is_empty() && doubles.is_empty() && violations.is_empty() && self.deserters == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { findings, book, calls, .. } = self;
        let ended = |end| findings.ends.get(&end).copied().unwrap_or(0);
        writeln!(
            f,
            "  {} hierarchies in {:.0} s: {} committed, {} rolled back, {} not to be undone as planned; {} runs, {} \
             events, {} ticks; {} cancelled, {} undone in the end",
            findings.hierarchies,
            self.took.as_secs_f64(),
            ended(End::Committed),
            ended(End::RolledBack),
            ended(End::NotUndone),
            findings.runs,
            findings.events,
            findings.ticks,
            book.cancelled,
            book.undone.len(),
        )?;
        writeln!(
            f,
            "  {} calls of a program without sagas; the longest launch took {:.1} s",
            calls.count(),
            calls.longest.as_secs_f64(),
        )?;
        writeln!(
            f,
            "  {} signals, {} steps that run at most once, {} executions after the first one",
            findings.signals, findings.begun, findings.executions,
        )?;
        writeln!(f, "  {} faults:", self.faults.values().sum::<usize>())?;
        for (fault, times) in &self.faults {
            writeln!(f, "  {times:>6} {}", fault.name())?;
        }
        writeln!(
            f,
            "  {} effects in the database, {} outside, of which {} again under the same key; {} messages with ids of other times",
            findings.in_database, findings.outside, findings.repeated, findings.from_other_times,
        )?;
        writeln!(
            f,
            "  {} losses, {} doubles, {} violations, {} workers gone by themselves; longest recovery {:.1} s, done \
             {:.1} s after the last fault",
            findings.losses.len(),
            findings.doubles.len(),
            findings.violations.len(),
            self.deserters,
            self.longest_recovery.as_secs_f64(),
            self.drained.as_secs_f64(),
        )?;
        let wrong =
            [("lost", &findings.losses), ("double", &findings.doubles), ("violated", &findings.violations)];
        for (kind, list) in wrong {
            for finding in list.iter().take(SHOWN_MAX) {
                writeln!(f, "  {kind}: {finding}")?;
            }
        }
        Ok(())
    }
}
