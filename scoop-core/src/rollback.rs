//! The plan of a rollback: step instances in reverse, the children of each first.
//!
//! The plan is never stored. It is derived from the run's history with identical part names everywhere, so another
//! process can resume the rollback. For a long history the plan covers one window at a time ([`crate::window`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::window::{Beginning, Cut, Rest, Window, begins};
use crate::{Definition, RecordedStep};

/// One SUSPENDED of the forward path: of a step or of a child failure handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The step's name.
    pub step: String,
    /// The number of earlier calls if this was the step's child failure handler; otherwise `None`.
    pub handler_iteration: Option<u32>,
    /// The number of the definition under which it ended.
    pub definition: Option<i32>,
    /// The launched messages, in order.
    pub emitted: Vec<Uuid>,
    /// Whether handlers of these messages were waited for by a strategy, so that some may not have ended.
    pub by_strategy: bool,
    /// The output of the step.
    pub output: Option<Value>,
}

/// One part of a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackPart {
    /// Its recorded name.
    pub name: String,
    /// The position of the instance that it undoes.
    pub instance: usize,
    /// Whether it rolls back the children of the instance, which comes first, or the instance itself.
    pub of_children: bool,
}

/// The plan of a rollback: the history of the run, and the parts that undo it, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    instances: Vec<Instance>,
    /// For each instance its index among the runs of its step, and its loop iteration.
    counts: Vec<(usize, u32)>,
    parts: Vec<RollbackPart>,
    positions: BTreeMap<String, usize>,
    renamed: BTreeMap<String, String>,
    /// The window of the instances in the history; `None` if they are the whole history.
    window: Option<Window>,
    /// The recorded form of `window`.
    mark: Option<String>,
    /// The newest earlier output of each step, by its current name.
    earlier: BTreeMap<String, Value>,
    /// The last part of the next newer window, if there is one.
    follows: Option<String>,
    /// The steps of other definitions, by number: those that had steps which the definition at hand lacks.
    recorded: BTreeMap<i32, Arc<[RecordedStep]>>,
}

impl Plan {
    /// The plan for this history, oldest instance first.
    pub fn of(names: &RollbackNames, instances: Vec<Instance>) -> Self {
        Self::counted(names, None, instances)
    }

    /// The plan for a window of a history, or for the whole. `values` contains, by name, the outputs of its instances
    /// and the newest earlier output of each step.
    pub fn within(names: &RollbackNames, mut cut: Cut, mut values: BTreeMap<String, Value>) -> Self {
        for (position, completed) in (cut.position()..).zip(&mut cut.instances) {
            completed.output = values.remove(&output_name(&completed.step, position));
        }
        let numbered = values.into_iter().filter_map(|(name, value)| {
            let (step, position) = read_output_name(&name)?;
            Some((position, (names.current(step).to_owned(), value)))
        });
        let earlier = numbered.collect::<BTreeMap<_, _>>().into_values().collect();
        let window = cut.window;
        let plan = Self::counted(names, window.as_ref().and_then(Window::before), cut.instances);
        Self { mark: window.as_ref().and_then(Window::written), window, earlier, ..plan }
    }

    fn counted(names: &RollbackNames, before: Option<&Beginning>, instances: Vec<Instance>) -> Self {
        let counts = count(names, before, &instances);
        let mut parts = Vec::with_capacity(instances.len() * 2);
        for (instance, completed) in instances.iter().enumerate().rev() {
            let (index, _) = counts[instance];
            let name = names.children(&completed.step, index, completed.handler_iteration);
            parts.push(RollbackPart { name, instance, of_children: true });
            if completed.handler_iteration.is_none() {
                let name = names.own(&completed.step, index);
                parts.push(RollbackPart { name, instance, of_children: false });
            }
        }
        let positions = parts.iter().enumerate().map(|(at, part)| (part.name.clone(), at)).collect();
        let renamed = names.renamed.clone();
        Self { instances, counts, parts, positions, renamed, ..Self::default() }
    }

    /// The rest of the history after this plan is done; `None` if nothing is left.
    pub fn rest(&self) -> Option<Rest> {
        self.window.as_ref()?.rest(&self.instances)
    }

    /// Whether `part` is the last part before an older window.
    pub(crate) fn ends_with(&self, part: &str) -> bool {
        let goes_on = self.window.as_ref().is_some_and(|window| window.before().is_some());
        goes_on && self.parts.last().is_some_and(|last| last.name == part)
    }

    /// Whether `part` can only belong to an older window.
    pub(crate) fn is_newer_than(&self, part: &str) -> bool {
        let goes_on = self.window.as_ref().is_some_and(|window| window.before().is_some());
        goes_on && self.position(part).is_none() && !self.is_after(part)
    }

    /// Whether `part` directly precedes the first part.
    pub(crate) fn is_after(&self, part: &str) -> bool {
        self.follows.as_deref() == Some(part)
    }

    /// Sets the last part of the next newer window.
    pub(crate) fn after(self, part: Option<String>) -> Self {
        Self { follows: part, ..self }
    }

    /// The messages whose handlers were waited for by a strategy, so that some may not have ended.
    pub fn left(&self) -> Vec<Uuid> {
        let by_strategy = self.instances.iter().filter(|completed| completed.by_strategy);
        by_strategy.flat_map(|completed| completed.emitted.iter().copied()).collect()
    }

    /// Records that of those messages every handler has ended.
    pub(crate) fn nothing_left(&mut self) {
        self.instances.iter_mut().for_each(|completed| completed.by_strategy = false);
    }

    /// The numbers of the definitions under which instances ended whose steps this definition lacks.
    pub fn foreign(&self, definition: &Definition) -> BTreeSet<i32> {
        let foreign = self.instances.iter().filter(|it| definition.step_index(&it.step).is_none());
        foreign.filter_map(|completed| completed.definition).collect()
    }

    /// Sets the steps of the definitions of [`Plan::foreign`].
    #[must_use]
    pub fn knowing(self, recorded: BTreeMap<i32, Arc<[RecordedStep]>>) -> Self {
        Self { recorded, ..self }
    }

    /// The step of this instance in the definition under which it ended, if that was read.
    pub(crate) fn recorded(&self, completed: &Instance) -> Option<&RecordedStep> {
        self.recorded.get(&completed.definition?)?.iter().find(|step| step.is_named(&completed.step))
    }

    /// The mark by which the window of the parts is found again; `None` for a whole history.
    pub(crate) fn mark(&self) -> Option<&str> {
        self.mark.as_deref()
    }

    /// The parts in their order.
    pub fn parts(&self) -> &[RollbackPart] {
        &self.parts
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    pub(crate) fn instance(&self, part: &RollbackPart) -> &Instance {
        &self.instances[part.instance]
    }

    /// The loop iteration in which the instance ran.
    pub(crate) fn iteration(&self, part: &RollbackPart) -> u32 {
        self.counts[part.instance].1
    }

    /// The messages launched by the step execution that this part undoes: by the step itself, by its child
    /// failure handlers, its cleanup, and the wait before the next step. `None` for an unknown part.
    pub fn launched(&self, definition: &Definition, part: &str) -> Option<Vec<Uuid>> {
        let instance = self.parts[self.position(part)?].instance;
        let begins = |completed: &Instance| begins(definition, completed);
        let from = self.instances[..=instance].iter().rposition(begins).unwrap_or(0);
        let later = self.instances[instance + 1..].iter().take_while(|completed| !begins(completed));
        let execution = self.instances[from..=instance].iter().chain(later);
        Some(execution.flat_map(|completed| completed.emitted.iter().copied()).collect())
    }

    /// Whether the cleanup after the instance that a part undoes is still due. `cleans` selects its cleanup and the
    /// step itself: if either has run later, no cleanup is due.
    pub(crate) fn is_cleanup_due(&self, part: &RollbackPart, cleans: impl Fn(&str) -> bool) -> bool {
        let mut later = self.instances[part.instance + 1..].iter();
        let cleaned = later.any(|completed| completed.handler_iteration.is_none() && cleans(&completed.step));
        !cleaned && !self.window.as_ref().is_some_and(|window| window.is_before_any(cleans))
    }

    /// The newest outputs of the steps at the completion of the instance, by their current names.
    pub(crate) fn outputs(&self, part: &RollbackPart) -> BTreeMap<String, Value> {
        let known = self.instances[..=part.instance].iter();
        let name = |it: &Instance| self.renamed.get(&it.step).unwrap_or(&it.step).clone();
        let known = known.filter_map(|completed| Some((name(completed), completed.output.clone()?)));
        self.earlier.clone().into_iter().chain(known).collect()
    }
}

/// For each instance its index among the runs of its step, counted from 0, and the number of runs of the same step that
/// directly precede it. A child failure handler belongs to the run before it. Instances in `before` count, too.
fn count(names: &RollbackNames, before: Option<&Beginning>, instances: &[Instance]) -> Vec<(usize, u32)> {
    let runs = before.into_iter().flat_map(|before| &before.runs);
    let mut runs: BTreeMap<&str, usize> = runs.map(|(step, count)| (&**step, *count as usize)).collect();
    let newest = before.and_then(|before| before.newest.as_ref());
    let mut newest = newest.map(|(step, iteration)| (names.current(step), *iteration));
    let mut counts = Vec::with_capacity(instances.len());
    for completed in instances {
        let seen = runs.entry(&completed.step).or_insert(0);
        if completed.handler_iteration.is_none() {
            *seen += 1;
            let current = names.current(&completed.step);
            newest = match newest {
                Some((step, iteration)) if step == current => Some((step, iteration + 1)),
                _ => Some((current, 0)),
            };
        }
        counts.push((seen.saturating_sub(1), newest.map_or(0, |(_, iteration)| iteration)));
    }
    counts
}

/// The prefix of names of parts, without the mark that distinguishes them from steps.
const PREFIX: &str = "Rollback of ";

/// The suffix of names of parts that roll back the children of a step.
const SUFFIX: &str = " (rolling back child scopes)";

/// The names of the parts of a rollback, distinct from the names of the saga's own steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackNames {
    prefix: String,
    suffix: String,
    renamed: BTreeMap<String, String>,
}

impl RollbackNames {
    /// The names for this saga. `$` is appended to prefix and suffix until no step has them.
    pub fn of(definition: &Definition) -> Self {
        let mut prefix = PREFIX.to_owned();
        while definition.steps.iter().any(|step| step.name.starts_with(&prefix)) {
            prefix.push('$');
        }
        let mut suffix = SUFFIX.to_owned();
        while definition.steps.iter().any(|step| step.name.ends_with(&suffix)) {
            suffix.push('$');
        }
        let renamed = definition
            .steps
            .iter()
            .flat_map(|step| step.was.iter().map(|was| ((*was).to_owned(), step.name.to_string())))
            .collect();
        Self { prefix, suffix, renamed }
    }

    /// The prefix of the names of all parts.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn recorded(&self, step: &str) -> Vec<String> {
        let current = self.current(step);
        let former = self.renamed.iter().filter(|(_, now)| *now == current).map(|(was, _)| was.clone());
        former.chain([current.to_owned()]).collect()
    }

    pub(crate) fn current<'a>(&'a self, step: &'a str) -> &'a str {
        self.renamed.get(step).map_or(step, String::as_str)
    }

    /// Whether the name belongs to a part of a rollback.
    pub fn matches(&self, step: &str) -> bool {
        step.starts_with(&self.prefix)
    }

    /// The recorded step name of a rollback without parts.
    pub(crate) fn sentinel(&self, definition: &Definition) -> String {
        self.own(definition.steps.first().map_or("", |step| &step.name), 0)
    }

    fn own(&self, step: &str, index: usize) -> String {
        format!("{}{step}[{index},]", self.prefix)
    }

    fn children(&self, step: &str, index: usize, handler_iteration: Option<u32>) -> String {
        let handled = handler_iteration.map_or(String::new(), |iteration| iteration.to_string());
        format!("{}{step}[{index},{handled}]{}", self.prefix, self.suffix)
    }
}

/// The effect of a part of a rollback, parsed from its name.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Undoes;
///
/// let part = Undoes::of("Rollback of charge[0,] (rolling back child scopes)").expect("a part of a rollback");
/// assert_eq!((part.step, part.of_children), ("charge", true));
/// assert_eq!(Undoes::of("charge"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undoes<'a> {
    /// The step.
    pub step: &'a str,
    /// Whether it rolls back the children of the step, not the step itself.
    pub of_children: bool,
}

impl<'a> Undoes<'a> {
    /// The effect of the part with this name; `None` if the name belongs to no part.
    ///
    /// A step of a saga may have such a name, too. It is the name of a part only in a run that is rolling back.
    pub fn of(part: &'a str) -> Option<Self> {
        let named = part.strip_prefix(PREFIX)?.trim_start_matches('$');
        let own = named.trim_end_matches('$').strip_suffix(SUFFIX);
        let (step, count) = own.unwrap_or(named).strip_suffix(']')?.rsplit_once('[')?;
        let (index, handled) = count.split_once(',')?;
        let is_count = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let counts = !index.is_empty() && is_count(index) && is_count(handled);
        counts.then_some(Self { step, of_children: own.is_some() })
    }
}

/// The name under which the output of a step instance is stored among the return values of its run. `suspension` is the
/// instance's position in the run's history. The byte order of the names of one step is the order of their positions.
pub fn output_name(step: &str, suspension: u32) -> String {
    format!("Output of {step}#{suspension:010}")
}

/// The step and the position in the name of an output.
pub fn read_output_name(name: &str) -> Option<(&str, u32)> {
    let (step, number) = name.strip_prefix("Output of ")?.rsplit_once('#')?;
    Some((step, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StepDefinition, StepKind};

    fn completed(step: &str, handler_iteration: Option<u32>) -> Instance {
        Instance {
            step: step.into(),
            handler_iteration,
            definition: None,
            emitted: vec![],
            by_strategy: false,
            output: None,
        }
    }

    fn names_of(steps: &[&'static str]) -> RollbackNames {
        let steps: Vec<_> = steps.iter().map(|name| StepDefinition::new(name)).collect();
        RollbackNames::of(&Definition { steps: steps.into(), ..Definition::new("s", "t", &[]) })
    }

    #[test]
    fn newest_instance_first_and_its_children_before_itself() {
        let history =
            [completed("a", None), completed("a", None), completed("a", Some(0)), completed("b", None)];
        let plan = Plan::of(&names_of(&["a", "b"]), history.into());
        let names: Vec<_> = plan.parts().iter().map(|part| part.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Rollback of b[0,] (rolling back child scopes)",
                "Rollback of b[0,]",
                "Rollback of a[1,0] (rolling back child scopes)",
                "Rollback of a[1,] (rolling back child scopes)",
                "Rollback of a[1,]",
                "Rollback of a[0,] (rolling back child scopes)",
                "Rollback of a[0,]",
            ]
        );
    }

    #[test]
    fn step_names_like_rollback_parts_stay_distinct() {
        let names = names_of(&["Rollback of $x", "Rollback of y (rolling back child scopes)"]);
        let plan = Plan::of(&names, vec![completed("Rollback of $x", None)]);
        let plan = plan.parts();
        assert_eq!(plan[0].name, "Rollback of $$Rollback of $x[0,] (rolling back child scopes)$");
        assert!(!names.matches("Rollback of $x") && names.matches(&plan[1].name));
    }

    #[test]
    fn name_of_a_part_gives_the_undone_step() {
        let names = names_of(&["Rollback of $x", "y[1] (rolling back child scopes)"]);
        let history = vec![completed("x[0,]", None), completed("y[1] (rolling back child scopes)", Some(3))];
        let plan = Plan::of(&names, history);
        let undoes: Vec<_> = plan.parts().iter().map(|part| Undoes::of(&part.name)).collect();
        let expected = |step, of_children| Some(Undoes { step, of_children });
        let y = "y[1] (rolling back child scopes)";
        assert_eq!(undoes, [expected(y, true), expected("x[0,]", true), expected("x[0,]", false)]);
        for name in ["", "x", "Rollback of x", "Rollback of x[]", "Rollback of x[,]", "Rollback of x[a,]"] {
            assert_eq!(Undoes::of(name), None, "{name}");
        }
    }

    #[test]
    fn cleanup_is_due_for_the_newest_instance_unless_done() {
        let due = |history: &[Instance]| {
            let plan = Plan::of(&names_of(&["a", "a finally", "b"]), history.into());
            let own = plan.parts().iter().filter(|part| !part.of_children && plan.instance(part).step == "a");
            own.map(|part| plan.is_cleanup_due(part, |step| step == "a" || step == "a finally"))
                .collect::<Vec<_>>()
        };
        let [a, handled, finally, b] = [
            completed("a", None),
            completed("a", Some(0)),
            completed("a finally", None),
            completed("b", None),
        ];
        assert_eq!(due(std::slice::from_ref(&a)), [true]);
        assert_eq!(due(&[a.clone(), b.clone()]), [true]);
        assert_eq!(due(&[a.clone(), handled.clone()]), [true]);
        assert_eq!(due(&[a.clone(), handled, finally.clone(), b]), [false]);
        assert_eq!(due(&[a.clone(), a.clone()]), [true, false], "the newest one first");
        assert_eq!(due(&[a.clone(), finally, a]), [true, false]);
    }

    #[test]
    fn launches_of_a_step_execution_are_those_of_its_handlers_and_its_cleanup_too() {
        let kinds = [("a", StepKind::Code), ("a finally", StepKind::Finally), ("b", StepKind::Code)];
        let steps: Vec<_> = kinds.map(|(name, kind)| StepDefinition::new(name).of_kind(kind)).into();
        let definition = Definition { steps: steps.into(), ..Definition::new("s", "t", &[]) };
        let launching =
            |completed: Instance, message| Instance { emitted: vec![Uuid::from_u128(message)], ..completed };
        let history = [
            launching(completed("a", None), 1),
            launching(completed("a", None), 2),
            launching(completed("a", Some(0)), 3),
            launching(completed("a", Some(1)), 4),
            launching(completed("a finally", None), 5),
            launching(completed("b", None), 6),
            launching(completed("a", None), 7),
        ];
        let plan = Plan::of(&RollbackNames::of(&definition), history.into());
        let launched = |part: &str| {
            let launched = plan.launched(&definition, part)?;
            Some(launched.iter().map(Uuid::as_u128).collect::<Vec<_>>())
        };
        assert_eq!(launched("Rollback of a[0,]"), Some(vec![1]), "each iteration is an execution of its own");
        assert_eq!(launched("Rollback of a[1,]"), Some(vec![2, 3, 4, 5]));
        assert_eq!(launched("Rollback of a finally[0,]"), Some(vec![2, 3, 4, 5]));
        assert_eq!(launched("Rollback of b[0,]"), Some(vec![6]));
        assert_eq!(launched("Rollback of a[2,]"), Some(vec![7]));
        assert_eq!(launched("Rollback of c[0,]"), None);
    }

    #[test]
    fn newest_value_of_a_renamed_step_has_its_current_name() {
        let mut definition = Definition::new("s", "t", &[]);
        definition.steps = vec![StepDefinition::new("b").formerly(&["a"])].into();
        let returned =
            |step: &str, value: u8| Instance { output: Some(value.into()), ..completed(step, None) };
        let plan = Plan::of(&RollbackNames::of(&definition), vec![returned("b", 1), returned("a", 2)]);
        let values: Vec<_> = plan.parts().iter().map(|part| plan.outputs(part)["b"].clone()).collect();
        assert_eq!(values, [2, 2, 1, 1]);
        assert!(!plan.outputs(&plan.parts()[0]).contains_key("a"));
    }

    #[test]
    fn an_iteration_counts_only_direct_repetition() {
        let history = [
            completed("a", None),
            completed("a", None),
            completed("a", Some(0)),
            completed("a", None),
            completed("b", None),
            completed("a", None),
        ];
        let iterations: Vec<_> = count(&names_of(&["a", "b"]), None, &history)
            .into_iter()
            .map(|(_, iteration)| iteration)
            .collect();
        assert_eq!(iterations, [0, 1, 1, 2, 0, 0]);
    }
}
