//! Reads the history of a run for its rollback: all of a short one, a window at a time of a long one.
//!
//! The cost does not grow with the history, except once: while no part of the rollback names its window, the instances
//! are counted.
//!
//! Each recorded part names its window, so any process that continues the rollback reads that window only
//! (`run_history.sql`). Counts of the other windows follow from that of the newest one (`run_count_parts.sql`,
//! `run_count_repetitions.sql`). Values are looked up by name: names of outputs end with a ten-digit position, so the newest
//! value before a window is one index lookup (`run_values.sql`).

use std::collections::BTreeMap;

use scoop_core::{
    Cut, Definition, EntriesRead, Entry, Path, Plan, Rest, RollbackNames, RollbackProgress, Run, Suspension,
    output_name,
};
use serde_json::Value;

use super::execution::{Exit, unread};
use super::shared::Engine;
use super::topology::recorded::recorded;
use crate::saga::registry::RunnableSaga;
use crate::store::{Store, ValueQuery};

/// Reads the history that the rollback of a run needs. Returns the message of its newest execution, if that was read, and
/// is not the message of the run.
pub(super) async fn load_rollback_plan(
    engine: &Engine,
    saga: &RunnableSaga,
    run: &mut Run,
) -> Result<Option<Value>, Exit> {
    let mut message = None;
    if !run.needs_plan() {
        return Ok(message);
    }
    let log = Log::new(&engine.store, &saga.definition, engine.settings.history_entries);
    while run.needs_plan() {
        let unread = |error: sqlx::Error| unread("its history could not be read", &error);
        match run.rest() {
            Some(rest) => {
                let plan = log.older(run, &rest, None).await.map_err(unread)?;
                run.recall_rest(with_removed_steps(engine, saga, plan).await?);
            }
            None => {
                let read = log.newest(run).await.map_err(unread)?;
                message = read.message;
                let plan = with_removed_steps(engine, saga, read.plan).await?;
                run.set_rollback_plan(plan, read.progress);
            }
        }
    }
    Ok(message)
}

/// Whether the rollback skips a step that the definition at hand does not have follows from the definition under which
/// it ended.
async fn with_removed_steps(engine: &Engine, saga: &RunnableSaga, plan: Plan) -> Result<Plan, Exit> {
    let mut known = BTreeMap::new();
    for number in plan.foreign(&saga.definition) {
        if let Some(steps) = recorded(engine, saga, Some(number)).await? {
            known.insert(number, steps);
        }
    }
    Ok(plan.knowing(known))
}

struct Log<'a> {
    store: &'a Store,
    definition: &'a Definition,
    names: RollbackNames,
    /// The number of entries of a window.
    limit: usize,
}

/// The plan of a rollback, and its progress.
struct Read {
    plan: Plan,
    progress: RollbackProgress,
    /// The message of the newest execution, if it is not that of the run.
    message: Option<Value>,
}

impl<'a> Log<'a> {
    fn new(store: &'a Store, definition: &'a Definition, limit: usize) -> Self {
        Self { store, definition, names: RollbackNames::of(definition), limit }
    }

    /// The window of the newest part of the rollback, or the newest window; all of a short history.
    async fn newest(&self, run: &mut Run) -> sqlx::Result<Read> {
        let history = self.store.history(&self.names, &self.definition.saga, run, self.limit).await?;
        let message = history.execution.map(|execution| {
            run.execution.after = Some(execution.after);
            (run.execution.suspensions, run.execution.number) = (execution.suspensions, execution.number);
            execution.payload
        });
        let plan = match history.window {
            Some(window) => self.plan(run, Cut::of(window, history.entries)).await?,
            None if history.entries.len() < self.limit && message.is_some() => {
                self.plan(run, Cut::whole(history.entries)).await?
            }
            None if history.entries.len() < self.limit => {
                Plan::within(&self.names, Cut::whole(history.entries), history.outputs)
            }
            None => self.first(run, history.entries).await?,
        };
        let read = Read { plan, progress: history.progress, message };
        Ok(match run.path {
            Path::Backward { failed_before: true, .. } if self.store.reruns_part(run).await? => {
                read.repeated()
            }
            _ => read,
        })
    }

    /// The newest window of a long history, of which these are the newest entries.
    async fn first(&self, run: &Run, entries: Vec<Entry>) -> sqlx::Result<Plan> {
        let Some(Entry::Suspended { at, .. }) = entries.first() else {
            return Err(sqlx::Error::Decode(
                "a run has launched something after its newest suspension".into(),
            ));
        };
        let all = self.store.count_history(&self.definition.saga, run, *at).await?;
        self.older(run, &Rest::all(all), Some(entries)).await
    }

    /// The newest window of this rest, of which the newest entries may be known.
    async fn older(&self, run: &Run, rest: &Rest, known: Option<Vec<Entry>>) -> sqlx::Result<Plan> {
        let (mut entries, mut limit) = (known, self.limit);
        loop {
            let newest = match entries.take() {
                Some(newest) => newest,
                None => {
                    let saga = &self.definition.saga;
                    self.store.entries_until(&self.names, saga, run, limit, rest.until()).await?
                }
            };
            let read = if newest.len() < limit { EntriesRead::All } else { EntriesRead::Newest };
            if let Some(cut) = rest.cut(self.definition, &self.names, newest, read) {
                return self.plan(run, cut).await;
            }
            // One execution of a step has more entries than a window.
            limit *= 2;
        }
    }

    /// The plan of a window, with the facts that it needs from before.
    async fn plan(&self, run: &Run, cut: Cut) -> sqlx::Result<Plan> {
        let saga = &self.definition.saga;
        let mut cut = cut.after(run.execution.suspensions);
        if let Some((steps, until)) = cut.unknown() {
            let repeated = self.store.repetitions(saga, run, &steps, until).await?;
            cut.repeated(&self.names, repeated);
        }
        let names = cut.positions().map(|(position, step)| output_name(step, position)).collect();
        let steps = self.definition.steps.iter().flat_map(|step| step.all_names());
        let newest = cut.earlier().map(|(first, last)| {
            steps.map(|step| (output_name(step, first), output_name(step, last))).collect()
        });
        let wanted = ValueQuery { names, newest: newest.unwrap_or_default() };
        let values = self.store.values(saga, run, &wanted).await?;
        Ok(Plan::within(&self.names, cut, values))
    }
}

impl Read {
    /// The same plan, up to before the newest part of the rollback.
    fn repeated(mut self) -> Self {
        let parts = self.plan.parts();
        let newest = self.progress.last.as_ref().map_or("", |last| last.step.as_str());
        let at = parts.iter().position(|part| part.name == newest);
        let before = at.and_then(|at| at.checked_sub(1)).map(|before| parts[before].name.clone());
        if at.is_some() {
            let has_begun = before.is_some();
            let resume = |step| Suspension { step, jump: None, iteration: 0, handler_iteration: None };
            self.progress = RollbackProgress { last: before.map(resume), has_begun };
        }
        self
    }
}
