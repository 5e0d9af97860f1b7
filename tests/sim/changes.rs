//! Invariants of runs that several versions of a saga continued.
//!
//! They do not depend on the rule by which the engine finds the step where a run continues: only the effects
//! and their versions are checked.

use std::collections::{BTreeMap, BTreeSet};

use scoop::{EventKind, StepKind};
use scoop_audit::{Log, LoggedEvent as Logged};
use uuid::Uuid;

use crate::judge::{Wrong, attempt, executed};
use crate::play::Played;
use crate::scenario::{HANDLERS, Scenario};
use crate::versions;
use crate::world::{Call, Code};

/// A step of a version of a saga: its number, and whether it is compensated.
type Step = (usize, bool);

/// The steps of the versions of a saga.
struct Versions(BTreeMap<u8, Vec<Step>>);

impl Versions {
    /// The versions in the scenario, of the saga with this position among those that have versions.
    fn of(scenario: &Scenario, saga: &str, position: usize) -> Self {
        let numbers: BTreeSet<u8> = scenario.versions().iter().map(|versions| versions[position]).collect();
        let steps = |version: &u8| {
            let definition = versions::definition(saga, *version)?;
            let code = definition.steps.iter().filter(|step| step.kind == StepKind::Code);
            let known = code.filter_map(|step| Some((versions::number(saga, &step.name)?, step.compensated)));
            Some((*version, known.collect()))
        };
        Self(numbers.iter().filter_map(steps).collect())
    }

    fn has(&self, version: u8, number: usize) -> bool {
        self.position(version, number).is_some()
    }

    fn position(&self, version: u8, number: usize) -> Option<usize> {
        self.0.get(&version)?.iter().position(|(known, _)| *known == number)
    }

    /// The steps of all versions together.
    fn all(&self) -> BTreeSet<usize> {
        self.0.values().flatten().map(|(number, _)| *number).collect()
    }

    /// Whether some version runs one step before the other, or no version has both.
    fn allow(&self, earlier: usize, later: usize) -> bool {
        let order = |version: &u8| Some((self.position(*version, earlier)?, self.position(*version, later)?));
        let orders: Vec<_> = self.0.keys().filter_map(order).collect();
        orders.is_empty() || orders.iter().any(|(earlier, later)| earlier < later)
    }

    /// Whether all versions that have the step compensate it.
    fn compensate(&self, number: usize) -> bool {
        self.0.values().flatten().filter(|(known, _)| *known == number).all(|(_, compensated)| *compensated)
    }
}

/// All violations.
pub(crate) fn judge(scenario: &Scenario, played: &Played, log: &Log) -> Vec<Wrong> {
    let mut runs: BTreeMap<Uuid, Vec<&Logged>> = BTreeMap::new();
    for row in log.events.iter().filter(|row| row.handler.is_some()) {
        runs.entry(row.lineage.id()).or_default().push(row);
    }
    let mut wrong = vec![];
    for (position, (saga, ..)) in HANDLERS.iter().take(2).enumerate() {
        let versions = Versions::of(scenario, saga, position);
        let workers = workers(played, log, saga);
        for (id, rows) in runs.iter().filter(|(_, rows)| rows[0].handler.as_deref() == Some(saga)) {
            let history = History::of(played, *id, rows, &workers);
            let root = Some(rows[0].lineage.root_id());
            wrong.extend(history.check(&versions).map(|what| Wrong::new("change", root, what)));
        }
    }
    wrong.extend(begun_afresh(played));
    wrong
}

/// The version that each worker has, as far as it is known.
fn workers<'a>(played: &'a Played, log: &'a Log, saga: &str) -> BTreeMap<&'a str, u8> {
    let of = |row: &'a Logged| Some((row.identifier.as_deref()?, executed(played, row)?));
    let known = log.events.iter().filter_map(of).filter(|(_, call)| call.handler == saga);
    known.map(|(worker, call)| (worker, call.version)).collect()
}

/// The effects in a run.
struct History<'a> {
    steps: Vec<&'a Call>,
    undone: Vec<&'a Call>,
    /// The version that committed it, if that is known.
    committed: Option<Option<u8>>,
    rolled_back: bool,
    repaired: bool,
    /// Whether the run chose a step. Then steps may come again, or never.
    jumps: bool,
}

impl<'a> History<'a> {
    fn of(played: &'a Played, id: Uuid, rows: &[&Logged], workers: &BTreeMap<&str, u8>) -> Self {
        let undoing = |row: &&&Logged| row.kind == EventKind::Suspended && row.handler_iteration.is_none();
        let undone = rows.iter().filter(undoing).filter_map(|row| {
            // In one attempt, a cleanup comes after the compensation.
            let calls = played.notes.calls.get(..=attempt(row)?)?;
            let is_of_part = |call: &&Call| call.run == id && Some(&*call.step) == row.step.as_deref();
            let newest = calls.last().filter(is_of_part)?;
            let mut attempt =
                calls.iter().rev().filter(is_of_part).filter(|call| call.attempt == newest.attempt);
            attempt.find(|call| call.code == Code::Undo)
        });
        let of_kind = |kind: EventKind| rows.iter().find(|row| row.kind == kind);
        let committed = of_kind(EventKind::Committed);
        let root = rows[0].lineage.root_id();
        let is_below = |run: &Uuid| {
            let row = played.log.iter().find(|row| row.lineage.id() == *run);
            row.is_some_and(|row| row.lineage.root_id() == root)
        };
        Self {
            steps: rows.iter().filter_map(|row| executed(played, row)).collect(),
            undone: undone.collect(),
            committed: committed.map(|row| workers.get(row.identifier.as_deref()?).copied()),
            rolled_back: of_kind(EventKind::RolledBack).is_some(),
            repaired: played.repaired.iter().any(is_below),
            jumps: played.notes.calls.iter().any(|call| call.run == id && call.jumps),
        }
    }

    fn check(&self, versions: &Versions) -> impl Iterator<Item = String> {
        let mut wrong = vec![];
        if !self.jumps {
            wrong.extend(self.twice());
            wrong.extend(self.skipped(versions));
            wrong.extend(self.out_of_order(versions));
        }
        wrong.extend(self.undone_wrongly(versions));
        let description = self.describe();
        wrong.into_iter().map(move |what| format!("{description}: {what}"))
    }

    /// Each step takes effect once in each iteration; iterations follow each other directly.
    fn twice(&self) -> Option<String> {
        let mut known: BTreeMap<usize, u32> = BTreeMap::new();
        let mut last = None;
        for call in &self.steps {
            let fits = match known.get(&call.number) {
                None => call.iteration == 0,
                Some(before) => last == Some(call.number) && call.iteration == before + 1,
            };
            if !fits {
                return Some(format!(
                    "step {} in iteration {} takes effect again",
                    call.number, call.iteration
                ));
            }
            known.insert(call.number, call.iteration);
            last = Some(call.number);
        }
        None
    }

    /// A step that a committed run lacks must be missing in a version under which the run went on.
    fn skipped(&self, versions: &Versions) -> Option<String> {
        let committed = self.committed?;
        let lacks = |version: u8, number: usize| !versions.has(version, number);
        let is_excused = |number: &usize| {
            self.steps.iter().any(|call| call.number == *number || lacks(call.version, *number))
                || committed.is_none_or(|version| lacks(version, *number))
                    && versions.0.keys().any(|version| lacks(*version, *number))
        };
        let skipped = versions.all().into_iter().find(|number| !is_excused(number))?;
        Some(format!("step {skipped} is skipped"))
    }

    /// Any two steps run in the order of some version.
    fn out_of_order(&self, versions: &Versions) -> Option<String> {
        let steps: Vec<_> = self.steps.iter().map(|call| call.number).collect();
        for (at, later) in steps.iter().enumerate() {
            let fits = |earlier: &&usize| *earlier == later || versions.allow(**earlier, *later);
            if let Some(earlier) = steps[..at].iter().find(|earlier| !fits(earlier)) {
                return Some(format!("step {later} comes after {earlier} in no version"));
            }
        }
        None
    }

    /// Compensations undo the effects in reverse, once each. All effects are undone if every version can.
    fn undone_wrongly(&self, versions: &Versions) -> Option<String> {
        if self.repaired {
            return None;
        }
        let mut undone = self.undone.iter().peekable();
        for done in self.steps.iter().rev() {
            let key = |call: &Call| (call.number, call.iteration);
            if undone.next_if(|undo| key(undo) == key(done)).is_none()
                && self.rolled_back
                && versions.compensate(done.number)
            {
                return Some(format!("step {} is not undone", done.number));
            }
        }
        let more = undone.next()?;
        Some(format!("step {} is undone out of turn", more.number))
    }

    /// The steps with their versions, and the compensated ones.
    fn describe(&self) -> String {
        let of = |calls: &[&Call]| {
            let description =
                calls.iter().map(|call| format!("{}.{}@{}", call.number, call.iteration, call.version));
            description.collect::<Vec<_>>().join(" ")
        };
        format!("{} | {}", of(&self.steps), of(&self.undone))
    }
}

/// A run that began at rest began in the version of the process that started last.
fn begun_afresh(played: &Played) -> Option<Wrong> {
    let Some((true, newest)) = played.notes.started.last() else {
        return None;
    };
    let fresh = played.notes.fresh?;
    let of_run =
        |run: Uuid| played.log.iter().any(|row| row.lineage.id() == run && row.lineage.root_id() == fresh);
    let mut calls = played.notes.calls.iter().filter(|call| call.handler == HANDLERS[0].0);
    let older = calls.find(|call| call.version != newest[0] && of_run(call.run))?;
    let what = format!("{} ran in version {}, not {}, the newest", older.step, older.version, newest[0]);
    Some(Wrong::new("newest", Some(fresh), what))
}
