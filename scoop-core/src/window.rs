//! Windows of a history, which bound the memory of a rollback for any length of the history.
//!
//! A rollback goes through the instances of a run from the newest to the oldest. For a long history its plan covers a
//! window: consecutive instances, and a summary of those before and after them. So the parts have the same names and
//! the same input as in a plan for the whole history. A window begins with the execution of a step. When its parts are
//! done, the next older window is cut.
//!
//! Each recorded part names its window in the `jump` of its SUSPENDED, so any program that continues the rollback reads
//! that window only. A history that fits into one window is read as a whole and has no such mark.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Definition, Instance, RollbackNames};

/// An event of the forward path.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A message was launched.
    Emitted(Uuid),
    /// An instance ended. The messages launched since the instance before belong to it.
    Suspended {
        /// The step's name.
        step: String,
        /// The number of earlier calls if this was the step's child failure handler; otherwise `None`.
        handler_iteration: Option<u32>,
        /// The number of the definition under which the step ended.
        definition: Option<i32>,
        /// Whether handlers of its messages were waited for by a strategy.
        by_strategy: bool,
        /// The time, in microseconds since 1970. It is unique within a run.
        at: i64,
    },
}

/// A summary of the oldest instances of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// The time of the newest instance, in microseconds since 1970.
    pub until: i64,
    /// The number of instances.
    pub instances: u32,
    /// The number of runs of each step.
    pub runs: BTreeMap<String, u32>,
    /// The current name of the step that ran last, and its loop iteration; `None` if unknown or not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<(String, u32)>,
}

/// How much of the part of a history was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntriesRead {
    /// All entries of the part.
    All,
    /// Only the newest ones.
    Newest,
}

/// The part of a history before a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The instances themselves.
    pub(crate) beginning: Beginning,
    /// The steps that ran after them.
    pub(crate) later: BTreeSet<String>,
}

/// Consecutive instances of a longer history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The preceding part of the history; `None` if the window begins with the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Beginning>,
    /// The time of its newest instance, in microseconds since 1970.
    until: i64,
    /// The steps that ran after it.
    later: BTreeSet<String>,
}

/// The instances of a window, oldest first, without their outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The window; `None` if this is the whole history.
    pub(crate) window: Option<Window>,
    pub(crate) instances: Vec<Instance>,
    /// The number of the first instance of the history, among all of the run.
    first: u32,
    /// The names of the step whose direct repetitions before the window are not known.
    unknown: Option<Vec<String>>,
}

impl Rest {
    /// A history of which no instance is undone yet.
    pub fn all(beginning: Beginning) -> Self {
        Self { beginning, later: BTreeSet::new() }
    }

    /// The time of its newest instance, in microseconds since 1970.
    pub fn until(&self) -> i64 {
        self.beginning.until
    }

    /// Cuts a window of its newest instances from `entries`, newest first. `None` if they do not contain a complete
    /// execution of a step.
    pub fn cut(
        &self,
        definition: &Definition,
        names: &RollbackNames,
        entries: Vec<Entry>,
        read: EntriesRead,
    ) -> Option<Cut> {
        let mut completed = in_order(entries);
        let mut after = None;
        if read == EntriesRead::Newest {
            let begins = |(_, (completed, _)): &(usize, &(Instance, i64))| begins(definition, completed);
            // Launches of the oldest instance may be missing among the entries.
            let (first, _) = completed.iter().enumerate().skip(1).find(begins)?;
            after = completed.drain(..first).next_back().map(|(_, at)| at);
        }
        let instances: Vec<_> = completed.into_iter().map(|(completed, _)| completed).collect();
        let end = &self.beginning;
        let iteration = iteration_of_first(names, end, &instances);
        let before = after.map(|until| {
            let mut runs = end.runs.clone();
            for completed in runs_of(&instances) {
                if let Some(count) = runs.get_mut(&completed.step) {
                    *count = count.saturating_sub(1);
                }
            }
            runs.retain(|_, count| *count > 0);
            let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);
            Beginning { until, instances: end.instances.saturating_sub(count), runs, newest: None }
        });
        let unknown = match (&before, iteration, instances.first()) {
            (Some(_), None, Some(first)) => Some(names.recorded(&first.step)),
            _ => None,
        };
        let window = Window { before, until: end.until, later: self.later.clone() };
        let mut cut = Cut { window: Some(window), instances, first: 0, unknown };
        if let Some(repetitions) = iteration {
            cut.repeated(names, repetitions);
        }
        Some(cut)
    }
}

impl Cut {
    /// A recorded window, with its entries, newest first.
    pub fn of(window: Window, entries: Vec<Entry>) -> Self {
        Self { window: Some(window), ..Self::whole(entries) }
    }

    /// A whole history, with its entries, newest first.
    pub fn whole(entries: Vec<Entry>) -> Self {
        let instances = in_order(entries).into_iter().map(|(completed, _)| completed).collect();
        Self { window: None, instances, first: 0, unknown: None }
    }

    /// Sets the number of instances before the history, which begins with an execution of the run.
    #[must_use]
    pub fn after(self, former: u32) -> Self {
        Self { first: former, ..self }
    }

    /// The number of instances of the run before it.
    pub fn position(&self) -> u32 {
        self.first.saturating_add(self.window.as_ref().map_or(0, Window::position))
    }

    /// The positions of the first and the last instance of the history before it; `None` if it begins the history.
    pub fn earlier(&self) -> Option<(u32, u32)> {
        let last = self.position().checked_sub(1)?;
        (self.first <= last).then_some((self.first, last))
    }

    /// The position of each instance among all of the run, and its step.
    pub fn positions(&self) -> impl Iterator<Item = (u32, &str)> {
        (self.position()..).zip(self.instances.iter().map(|completed| &*completed.step))
    }

    /// The names of a step and a time, if the number of direct repetitions of the step up to that time is needed and
    /// unknown. [`Cut::repeated`] takes the number.
    pub fn unknown(&self) -> Option<(Vec<String>, i64)> {
        let before = self.window.as_ref()?.before()?;
        Some((self.unknown.clone()?, before.until))
    }

    /// Sets the number of runs of the first step that directly precede the window.
    pub fn repeated(&mut self, names: &RollbackNames, repetitions: u32) {
        self.unknown = None;
        let before = self.window.as_mut().and_then(|window| window.before.as_mut());
        if let (Some(before), Some(first)) = (before, self.instances.first()) {
            let iteration = repetitions.checked_sub(1);
            before.newest = iteration.map(|iteration| (names.current(&first.step).to_owned(), iteration));
        }
    }
}

impl Window {
    /// The preceding part of the history; `None` if the window begins with the history.
    pub fn before(&self) -> Option<&Beginning> {
        self.before.as_ref()
    }

    /// The time of its newest instance, in microseconds since 1970.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// The window of a recorded part of a rollback, from the `jump` of its SUSPENDED.
    ///
    /// # Errors
    ///
    /// If `jump` is not a window.
    pub fn read(jump: &str) -> serde_json::Result<Self> {
        serde_json::from_str(jump)
    }

    /// The recorded form. Without it, finding the window again takes the whole history.
    pub(crate) fn written(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    fn position(&self) -> u32 {
        self.before.as_ref().map_or(0, |before| before.instances)
    }

    /// Whether one of these steps ran after it.
    pub(crate) fn is_before_any(&self, is: impl Fn(&str) -> bool) -> bool {
        self.later.iter().any(|step| is(step))
    }

    /// The rest of the history after these instances of it are undone; `None` if nothing is left.
    pub(crate) fn rest(&self, instances: &[Instance]) -> Option<Rest> {
        let mut later = self.later.clone();
        later.extend(runs_of(instances).map(|completed| completed.step.clone()));
        Some(Rest { beginning: self.before.clone()?, later })
    }
}

/// Whether an execution of a step begins with this instance. Child failure handlers, waits and cleanups belong to the
/// step before them.
pub(crate) fn begins(definition: &Definition, completed: &Instance) -> bool {
    let step = definition.steps.iter().find(|step| step.is_named(&completed.step));
    completed.handler_iteration.is_none() && step.is_none_or(|step| step.kind.is_visible())
}

/// The instances of these entries, oldest first, and their times.
fn in_order(entries: Vec<Entry>) -> Vec<(Instance, i64)> {
    let (mut completed, mut emitted) = (vec![], vec![]);
    for entry in entries.into_iter().rev() {
        match entry {
            Entry::Emitted(message) => emitted.push(message),
            Entry::Suspended { step, handler_iteration, definition, by_strategy, at } => {
                let emitted = std::mem::take(&mut emitted);
                let output = None;
                completed.push((
                    Instance { step, handler_iteration, definition, emitted, by_strategy, output },
                    at,
                ));
            }
        }
    }
    completed
}

fn runs_of(instances: &[Instance]) -> impl Iterator<Item = &Instance> {
    instances.iter().filter(|completed| completed.handler_iteration.is_none())
}

fn iteration_of_first(names: &RollbackNames, end: &Beginning, instances: &[Instance]) -> Option<u32> {
    let (step, iteration) = end.newest.as_ref()?;
    let step = names.current(step);
    let (mut same, mut others) = (0_u32, 0);
    for completed in runs_of(instances) {
        *(if names.current(&completed.step) == step { &mut same } else { &mut others }) += 1;
    }
    iteration.checked_sub(same.checked_sub(1)?).filter(|_| others == 0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{Plan, StepDefinition, StepKind, output_name};

    /// A history, and the outputs of its instances, by name.
    #[derive(Debug)]
    struct Log {
        entries: Vec<Entry>,
        values: BTreeMap<String, Value>,
    }

    /// All facts that a rollback uses of a part.
    #[derive(Debug, PartialEq)]
    struct PartSummary {
        part: String,
        instance: Instance,
        iteration: u32,
        outputs: BTreeMap<String, Value>,
        launched: Option<Vec<Uuid>>,
        cleanup_due: bool,
    }

    fn definition() -> Definition {
        let steps = vec![
            StepDefinition::new("a"),
            StepDefinition::new("a finally").of_kind(StepKind::Finally),
            StepDefinition::new("?b").of_kind(StepKind::Wait),
            StepDefinition::new("b").formerly(&["c"]),
        ];
        Definition { steps: steps.into(), ..Definition::new("saga", "topic", &[]) }
    }

    impl Log {
        /// A history of these steps: for each its number, whether it is a child failure handler, the number of its
        /// launches, and whether it has an output.
        fn of(completed: &[(usize, bool, u8, bool)]) -> Self {
            let steps = ["a", "a finally", "?b", "b", "c", "gone"];
            let mut log = Self { entries: vec![], values: BTreeMap::new() };
            let (mut at, mut before) = (0, None);
            for (position, (step, handles, emitted, returns)) in (0..).zip(completed) {
                let handles = before.filter(|_| *handles);
                let (step, handler_iteration) =
                    handles.map_or((*step, None), |(step, count)| (step, Some(count)));
                before = Some((step, handler_iteration.map_or(0, |count| count + 1)));
                for _ in 0..*emitted {
                    at += 1;
                    log.entries.push(Entry::Emitted(Uuid::from_u128(at)));
                }
                at += 1;
                let step = steps[step].to_owned();
                if *returns && handler_iteration.is_none() {
                    log.values.insert(output_name(&step, position), position.into());
                }
                let at = i64::try_from(at).unwrap();
                log.entries.push(Entry::Suspended {
                    step,
                    handler_iteration,
                    definition: None,
                    by_strategy: false,
                    at,
                });
            }
            log
        }

        fn at(entry: &Entry) -> Option<i64> {
            match entry {
                Entry::Suspended { at, .. } => Some(*at),
                Entry::Emitted(_) => None,
            }
        }

        /// Up to `limit` entries until then, newest first.
        fn up_to(&self, until: i64, limit: usize) -> (Vec<Entry>, EntriesRead) {
            let end = self.entries.iter().position(|entry| Self::at(entry) == Some(until)).unwrap() + 1;
            let newest: Vec<_> = self.entries[..end].iter().rev().take(limit).cloned().collect();
            (newest, if end < limit { EntriesRead::All } else { EntriesRead::Newest })
        }

        fn suspended(&self) -> impl DoubleEndedIterator<Item = (&str, bool, i64)> {
            self.entries.iter().filter_map(|entry| match entry {
                Entry::Suspended { step, handler_iteration, at, .. } => {
                    Some((&**step, handler_iteration.is_none(), *at))
                }
                Entry::Emitted(_) => None,
            })
        }

        fn beginning(&self) -> Option<Beginning> {
            let mut runs = BTreeMap::new();
            for (step, is_run, _) in self.suspended() {
                *runs.entry(step.to_owned()).or_insert(0) += u32::from(is_run);
            }
            let instances = u32::try_from(self.suspended().count()).unwrap();
            Some(Beginning { until: self.suspended().next_back()?.2, instances, runs, newest: None })
        }

        fn cut(&self, definition: &Definition, rest: &Rest, mut limit: usize) -> Cut {
            let names = RollbackNames::of(definition);
            loop {
                let (entries, read) = self.up_to(rest.until(), limit);
                if let Some(mut cut) = rest.cut(definition, &names, entries, read) {
                    if let Some((same, until)) = cut.unknown() {
                        let runs = self.suspended().rev().filter(|(_, is_run, at)| *is_run && *at <= until);
                        let repeated = runs.take_while(|(step, ..)| same.iter().any(|name| name == step));
                        cut.repeated(&names, u32::try_from(repeated.count()).unwrap());
                    }
                    return cut;
                }
                limit *= 2;
            }
        }

        /// The outputs of the instances of a window, and the newest earlier output of each step.
        fn values(&self, cut: &Cut) -> BTreeMap<String, Value> {
            let (mut values, mut newest) = (BTreeMap::new(), BTreeMap::new());
            let first = cut.position();
            let end = first + u32::try_from(cut.instances.len()).unwrap();
            for (name, value) in &self.values {
                let (step, position) = crate::read_output_name(name).unwrap();
                if (first..end).contains(&position) {
                    values.insert(name.clone(), value.clone());
                } else if position < first {
                    newest.insert(step, (name.clone(), value.clone()));
                }
            }
            values.extend(newest.into_values());
            values
        }
    }

    fn parts_of(definition: &Definition, plan: &Plan) -> Vec<PartSummary> {
        let all = plan.parts().iter().map(|part| PartSummary {
            part: part.name.clone(),
            instance: plan.instance(part).clone(),
            iteration: plan.iteration(part),
            outputs: plan.outputs(part),
            launched: plan.launched(definition, &part.name),
            cleanup_due: plan.is_cleanup_due(part, |step| ["a", "a finally"].contains(&step)),
        });
        all.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn windows_give_the_same_parts_as_the_whole_history(
            completed in vec((0_usize..6, prop::bool::weighted(0.2), 0_u8..3, any::<bool>()), 1..40),
            limit in 1_usize..12,
        ) {
            let (definition, log) = (definition(), Log::of(&completed));
            let names = RollbackNames::of(&definition);
            let cut = Cut::whole(log.entries.iter().rev().cloned().collect());
            let whole = parts_of(&definition, &Plan::within(&names, cut, log.values.clone()));
            let (mut rest, mut windows) = (log.beginning().map(Rest::all), vec![]);
            while let Some(older) = rest {
                let cut = log.cut(&definition, &older, limit);
                let plan = Plan::within(&names, cut.clone(), log.values(&cut));
                // The mark gives the same plan.
                let window = Window::read(plan.mark().unwrap()).unwrap();
                prop_assert_eq!(Some(&window), cut.window.as_ref());
                let (entries, _) = log.up_to(window.until(), usize::MAX);
                let after = window.before().map(|before| before.until);
                let inside = entries.into_iter().take_while(|entry| after.is_none() || Log::at(entry) != after);
                let again = Cut::of(window, inside.collect());
                prop_assert_eq!(&Plan::within(&names, again, log.values(&cut)), &plan);
                windows.extend(parts_of(&definition, &plan));
                rest = plan.rest();
            }
            prop_assert_eq!(windows, whole);
        }
    }
}
