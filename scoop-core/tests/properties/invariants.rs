//! The invariants of the record of every script, checked on rows and calls alone.

use std::collections::{BTreeMap, BTreeSet};

use scoop_core::{Event, EventKind, Lineage};
use serde_json::Value;
use uuid::Uuid;

use crate::driver::{Called, Code, Row, Script, World};

/// Checks all invariants, and returns the first violation.
pub(super) fn check(script: &Script, world: &World<'_>) -> Result<(), String> {
    every_run_ends(world)?;
    time_goes_on(world)?;
    for (lineage, rows) in runs(world) {
        let run = Run { world, lineage: &lineage, rows };
        let checked = run
            .has_its_place()
            .and_then(|()| run.inherits_its_context())
            .and_then(|()| run.happens_in_order())
            .and_then(|()| run.waits_for_its_children())
            .and_then(|()| run.hears_of_failed_children())
            .and_then(|()| run.is_undone_in_reverse(script));
        checked.map_err(|why| format!("{}: {why}", run.handler()))?;
    }
    rolled_back_as_a_whole(world)
}

/// A run in the record: its rows, with their positions.
struct Run<'a> {
    world: &'a World<'a>,
    lineage: &'a Lineage,
    rows: Vec<(usize, &'a Row)>,
}

fn runs<'a>(world: &'a World<'_>) -> BTreeMap<Lineage, Vec<(usize, &'a Row)>> {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, row) in world.rows.iter().enumerate() {
        if row.handler.is_some() {
            runs.entry(row.lineage.clone()).or_default().push((at, row));
        }
    }
    runs
}

fn every_run_ends(world: &World<'_>) -> Result<(), String> {
    match world.unfinished().next() {
        None => Ok(()),
        Some((handler, ..)) => Err(format!("{handler}: never ends")),
    }
}

fn time_goes_on(world: &World<'_>) -> Result<(), String> {
    let mut pairs = world.rows.windows(2);
    ensure(pairs.all(|pair| pair[0].created_at < pair[1].created_at), || {
        "two rows have the same time, or a later one an earlier time".into()
    })
}

/// I9 without failed rollbacks: all descendants of a rolled-back run are rolled back. Runs launched by compensations
/// stay committed.
fn rolled_back_as_a_whole(world: &World<'_>) -> Result<(), String> {
    let failed = |row: &Row| row.event.kind == EventKind::RollbackFailed;
    let mut undoing = world.called().filter(|called| called.code != Code::Invoke);
    if world.rows.iter().any(failed) || undoing.any(|called| !called.emitted.is_empty()) {
        return Ok(());
    }
    let runs = runs(world);
    let end = |rows: &[(usize, &Row)]| rows.last().map(|(_, row)| row.event.kind);
    for (lineage, rows) in &runs {
        if end(rows) != Some(EventKind::RolledBack) {
            continue;
        }
        for (below, rows) in &runs {
            let is_below = below.ids().starts_with(lineage.ids());
            ensure(!is_below || end(rows) == Some(EventKind::RolledBack), || {
                "an ancestor is undone, but a run below is not".into()
            })?;
        }
    }
    Ok(())
}

impl Run<'_> {
    fn handler(&self) -> &str {
        self.rows[0].1.handler.as_deref().unwrap_or_default()
    }

    fn message(&self) -> Uuid {
        self.rows[0].1.event.message
    }

    /// I2: the lineage of a run is that of the emission and one more id.
    fn has_its_place(&self) -> Result<(), String> {
        let emitted =
            |row: &&Row| row.event.kind == EventKind::Emitted && row.event.message == self.message();
        let emission = self.world.rows.iter().find(emitted);
        let above = emission.map(|row| row.lineage.clone());
        ensure(above == self.lineage.parent() && above.is_some(), || {
            "its lineage does not follow from the emission".into()
        })
    }

    /// A run begins with the context of the emission, and a requested rollback with that of the request. The context
    /// never loses an element.
    fn inherits_its_context(&self) -> Result<(), String> {
        let given = |kind| {
            let mut rows = self.world.rows.iter();
            rows.find(|row| row.event.kind == kind && row.event.message == self.message())
        };
        let mut keys = BTreeSet::new();
        for (_, row) in &self.rows {
            let Event { kind, step, context, .. } = &row.event;
            let from = match (kind, step) {
                (EventKind::Seen, _) => given(EventKind::Emitted),
                (EventKind::RollingBack, None) => given(EventKind::RollbackEmitted),
                (EventKind::Emitted, _) => continue,
                _ => {
                    let now: BTreeSet<_> = context.iter().map(|(key, _)| key.to_owned()).collect();
                    ensure(now.is_superset(&keys), || "an element of its context is lost".into())?;
                    keys = now;
                    continue;
                }
            };
            let inherited = from.is_some_and(|from| from.event.context == *context);
            ensure(inherited, || "its context is not the inherited one".into())?;
        }
        Ok(())
    }

    /// I3, and the order of types: SEEN, the forward path, COMMITTED or not, and then the rollback if there is one.
    fn happens_in_order(&self) -> Result<(), String> {
        use EventKind::*;
        let mut before = None;
        for (_, row) in &self.rows {
            let kind = row.event.kind;
            let fits = match kind {
                Seen => before.is_none(),
                Emitted => matches!(before, Some(Seen | Emitted | Suspended | RollingBack)),
                Suspended => !matches!(before, None | Some(Committed | RolledBack | RollbackFailed)),
                Committed => before == Some(Suspended),
                RollingBack => matches!(before, Some(Seen | Suspended | Committed)),
                RollbackEmitted => {
                    matches!(before, Some(RollingBack | Suspended | RollbackEmitted))
                }
                RolledBack | RollbackFailed => matches!(before, Some(RollingBack | Suspended)),
                CancellationRequested => false,
            };
            ensure(fits, || format!("{kind:?} after {before:?}"))?;
            before = Some(kind);
        }
        for kind in [Seen, Committed, RollingBack, RolledBack, RollbackFailed] {
            let of_kind = self.rows.iter().filter(|(_, row)| row.event.kind == kind);
            ensure(of_kind.count() <= 1, || format!("{kind:?} twice"))?;
        }
        let ended = matches!(before, Some(Committed | RolledBack | RollbackFailed));
        ensure(ended, || format!("it ends with {before:?}"))
    }

    /// I1: after a suspension, a run waits until all handlers of the emitted messages and all requested rollbacks have
    /// ended.
    fn waits_for_its_children(&self) -> Result<(), String> {
        let (mut emitted, mut requested) = (BTreeSet::new(), BTreeSet::new());
        let mut suspended = false;
        for (at, row) in &self.rows {
            if suspended {
                self.all_ended(&emitted, &requested, *at)?;
            }
            suspended = row.event.kind == EventKind::Suspended;
            match row.event.kind {
                EventKind::Emitted => emitted.insert(row.event.message),
                EventKind::RollbackEmitted => requested.insert(row.event.message),
                _ => true,
            };
        }
        Ok(())
    }

    fn all_ended(
        &self,
        emitted: &BTreeSet<Uuid>,
        requested: &BTreeSet<Uuid>,
        limit: usize,
    ) -> Result<(), String> {
        for message in emitted {
            for handler in self.world.handlers(self.world.topic(*message)) {
                let end = self.child_end(*message, &handler, limit);
                let ended = match end {
                    Some(EventKind::Committed) => !requested.contains(message),
                    Some(EventKind::RolledBack | EventKind::RollbackFailed) => true,
                    _ => false,
                };
                ensure(ended, || format!("row {} did not wait for {handler}", limit + 1))?;
            }
        }
        Ok(())
    }

    /// The newest row before `limit` of a child.
    fn child_end(&self, message: Uuid, handler: &str, limit: usize) -> Option<EventKind> {
        let mut rows = self.world.rows[..limit].iter();
        let newest = rows.rfind(|row| {
            row.handler.as_deref() == Some(handler)
                && row.lineage.parent().as_ref() == Some(self.lineage)
                && row.event.message == message
        });
        newest.map(|row| row.event.kind)
    }

    /// I8: the next outcome of the run after the end of a failed child handles that failure.
    fn hears_of_failed_children(&self) -> Result<(), String> {
        for (at, row) in self.world.rows.iter().enumerate() {
            let is_child = row.lineage.parent().as_ref() == Some(self.lineage);
            let failed = match row.event.kind {
                EventKind::RolledBack => !self.was_told(row),
                EventKind::RollbackFailed => true,
                _ => false,
            };
            if !is_child || !failed {
                continue;
            }
            let mut later = self.rows.iter().filter(|(own, _)| *own > at);
            let next = later.find(|(_, row)| row.event.kind != EventKind::Emitted);
            let hears = next.is_some_and(|(_, row)| row.event.handler_iteration.is_some());
            ensure(hears, || format!("it did not handle the failure in row {}", at + 1))?;
        }
        Ok(())
    }

    /// Whether the rollback of the run that ended with this row was requested.
    fn was_told(&self, ended: &Row) -> bool {
        self.world.rows.iter().any(|row| {
            row.lineage == ended.lineage
                && row.event.kind == EventKind::RollingBack
                && row.event.step.is_none()
        })
    }

    /// I4: compensations in exactly the reverse order of the executed steps, with the iterations and outputs of their
    /// instances. Each comes after the rollback of its own children and before that of older ones.
    fn is_undone_in_reverse(&self, script: &Script) -> Result<(), String> {
        let calls = self.world.called();
        let calls: Vec<_> = calls.filter(|called| called.lineage == *self.lineage).collect();
        let turned = self.rows.iter();
        let turned = turned.filter(|(_, row)| row.event.kind == EventKind::RollingBack);
        let turned = turned.map(|(at, _)| *at).next().unwrap_or(usize::MAX);
        let done = |called: &&&Called| called.ended_well && called.rows_before <= turned;
        let undone = |called: &&&Called| called.code == Code::Undo;
        let executed: Vec<&Called> = calls.iter().filter(done).copied().collect();
        let undoing: Vec<&Called> = calls.iter().filter(undone).copied().collect();

        let to_undo = executed.iter().enumerate().rev();
        let to_undo =
            to_undo.filter(|(_, called)| called.code == Code::Invoke && is_compensated(script, called));
        let to_undo: Vec<_> = to_undo.collect();
        let end = self.rows[self.rows.len() - 1].1.event.kind;
        let complete = match end {
            EventKind::Committed => undoing.is_empty(),
            EventKind::RolledBack => undoing.len() == to_undo.len(),
            _ => undoing.len() <= to_undo.len(),
        };
        ensure(complete, || "the number of compensations is wrong".into())?;
        for ((position, done), undo) in to_undo.into_iter().zip(&undoing) {
            let what = || format!("{} in iteration {}", undo.step, undo.iteration);
            let same = (&done.step, done.iteration) == (&undo.step, undo.iteration);
            ensure(same, || format!("{} was undone instead of {}", what(), done.step))?;
            let outputs = outputs_after(&executed[..=position]);
            ensure(undo.outputs == outputs, || format!("{} had other outputs", what()))?;
            self.children_first(&executed, position, undo)?;
        }
        Ok(())
    }

    fn children_first(&self, executed: &[&Called], position: usize, undo: &Called) -> Result<(), String> {
        for (index, done) in executed.iter().enumerate() {
            for message in &done.emitted {
                let before = &self.world.rows[..undo.rows_before];
                let requested = before
                    .iter()
                    .any(|row| row.event.kind == EventKind::RollbackEmitted && row.event.message == *message);
                ensure(requested == (index >= position), || {
                    format!("{}: children are undone with another instance", undo.step)
                })?;
                for handler in self.world.handlers(self.world.topic(*message)) {
                    let end = self.child_end(*message, &handler, undo.rows_before);
                    let committed = end == Some(EventKind::Committed);
                    ensure(!requested || !committed, || {
                        format!("{} was undone before its child {handler}", undo.step)
                    })?;
                }
            }
        }
        Ok(())
    }
}

fn is_compensated(script: &Script, called: &Called) -> bool {
    let mut sagas = script.sagas.iter().filter(|saga| saga.name == called.handler);
    sagas.any(|saga| {
        let mut steps = saga.steps.iter();
        steps.any(|step| step.name == called.step && step.undo.is_some())
    })
}

/// The newest output of each step among these executions.
fn outputs_after(executed: &[&Called]) -> BTreeMap<String, Value> {
    let executed = executed.iter();
    executed.filter_map(|called| Some((called.step.clone(), called.returned.clone()?))).collect()
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
