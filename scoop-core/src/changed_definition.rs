//! The position at which a run continues, by the names of its steps.
//!
//! A run may continue under another definition than the one that recorded its newest step, since the program was
//! changed. Positions in the list of steps are not comparable then, so none is stored. The stored facts are the name of
//! the completed step, the name of the step that it chose, if any, and the names of all steps of that definition. The
//! steps before the decision have *passed*; those after it are still *ahead*. The rule: the change must not make a
//! passed step run again, and must not skip a step ahead. Where that cannot be decided, the run is stuck.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Definition, RecordedStep, Run, StepKind, Stuck, Suspension};

/// The position in `definition` at which a run continues after `last`; the number of steps if none is left.
pub(crate) fn resume(definition: &Definition, run: &Run, last: &Suspension) -> Result<usize, Stuck> {
    let at = match (&run.recorded, &last.jump) {
        (None, Some(target)) => known(definition, target)?,
        (None, None) => known(definition, &last.step)? + 1,
        (Some(recorded), _) => {
            let at = Change::new(Steps::of(definition), recorded, last)?.resume()?;
            check_needs(definition, at, &run.outputs)?;
            at
        }
    };
    let is_wait = definition.steps.get(at).is_some_and(|step| step.kind == StepKind::Wait);
    Ok(if is_wait { Steps::of(definition).behind_wait(at, run) } else { at })
}

/// The next step of this run under another definition of its saga; `None` if none is left or the run is stuck there.
pub(crate) fn next_under<'a>(
    definition: &Definition,
    run: &Run,
    steps: &'a [RecordedStep],
) -> Option<&'a RecordedStep> {
    let Some(last) = &run.last else {
        return steps.first();
    };
    let at_hand;
    let recorded = match &run.recorded {
        Some(recorded) => &**recorded,
        None => {
            at_hand = definition.recorded_steps();
            &at_hand
        }
    };
    let at = Change::new(Steps::recorded(&definition.saga, steps), recorded, last).ok()?.resume().ok()?;
    steps.get(Steps::recorded(&definition.saga, steps).behind_wait(at, run))
}

/// The position in `definition` of a step of another definition of its saga.
pub(crate) fn position_in(definition: &Definition, step: &RecordedStep) -> Option<usize> {
    Steps::of(definition).position(step)
}

/// Checks that every value needed by the steps from `at` on was returned, or still can be. A step that was inserted
/// before the position of the run will not run.
fn check_needs(definition: &Definition, at: usize, outputs: &BTreeMap<String, Value>) -> Result<(), Stuck> {
    let returned: BTreeSet<usize> = outputs.keys().filter_map(|step| definition.step_index(step)).collect();
    for step in &definition.steps[at..] {
        let lacks = |producer: &&&str| {
            definition.step_index(producer).is_some_and(|it| it < at && !returned.contains(&it))
        };
        if let Some(producer) = step.needs.iter().find(lacks) {
            return Err(Stuck::NoValue {
                saga: definition.saga.to_string(),
                step: step.name.to_string(),
                producer: (*producer).to_owned(),
            });
        }
    }
    Ok(())
}

/// The position of a recorded step.
///
/// # Errors
///
/// [`Stuck::NoSuchStep`] if the definition has no step of that name.
pub(crate) fn known(definition: &Definition, step: &str) -> Result<usize, Stuck> {
    definition
        .step_index(step)
        .ok_or_else(|| Stuck::NoSuchStep { saga: definition.saga.to_string(), step: step.to_owned() })
}

/// The error for a step that a newer program renamed: the definition at hand has only a former name of it.
pub(crate) fn renamed_since(saga: &str, step: &RecordedStep) -> Stuck {
    Stuck::RenamedSince { saga: saga.to_owned(), step: step.name.clone(), was: step.was.join("`, `") }
}

/// The steps of a definition, with the facts that determine the position.
struct Steps<'a> {
    saga: &'a str,
    steps: Vec<(&'a str, StepKind)>,
    positions: BTreeMap<&'a str, usize>,
}

impl<'a> Steps<'a> {
    fn of(definition: &'a Definition) -> Self {
        let steps = definition.steps.iter().map(|step| (&*step.name, step.kind));
        let former = definition.steps.iter().map(|step| step.was.iter().copied());
        Self::new(&definition.saga, steps.collect(), former)
    }

    fn recorded(saga: &'a str, steps: &'a [RecordedStep]) -> Self {
        let former = steps.iter().map(|step| step.was.iter().map(String::as_str));
        Self::new(saga, steps.iter().map(|step| (&*step.name, step.kind)).collect(), former)
    }

    fn new(
        saga: &'a str,
        steps: Vec<(&'a str, StepKind)>,
        former: impl Iterator<Item = impl Iterator<Item = &'a str>>,
    ) -> Self {
        let mut positions = BTreeMap::new();
        for (at, names) in former.enumerate() {
            positions.extend(names.map(|name| (name, at)));
        }
        positions.extend(steps.iter().enumerate().map(|(at, (name, _))| (*name, at)));
        Self { saga, steps, positions }
    }

    /// The position behind the wait at `at` if that is over for the next execution of its step: a step was inserted
    /// between the two, and has run in between.
    fn behind_wait(&self, at: usize, run: &Run) -> usize {
        let completions = |at: usize| -> u32 {
            let completed = run.completions.iter();
            completed
                .filter(|(name, _)| self.positions.get(name.as_str()) == Some(&at))
                .map(|(_, it)| it)
                .sum()
        };
        let is_wait = self.steps.get(at).is_some_and(|(_, kind)| *kind == StepKind::Wait);
        if is_wait && completions(at) > completions(at + 1) { at + 1 } else { at }
    }

    fn position(&self, step: &RecordedStep) -> Option<usize> {
        let names = std::iter::once(&step.name).chain(step.was.iter().rev());
        names.filter_map(|name| self.positions.get(name.as_str())).next().copied()
    }
}

/// Two definitions of one saga, and the decision of a step between them.
struct Change<'a> {
    now: Steps<'a>,
    last: &'a Suspension,
    /// The step that a continuing run refers to: the target of the jump, or the step that completed.
    reference: &'a str,
    passed: &'a [RecordedStep],
    ahead: &'a [RecordedStep],
    /// For each position in `now`: how the recorded definition classified the step.
    classes: Vec<Class>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The recorded definition does not have the step.
    New,
    Passed,
    Ahead,
}

impl<'a> Change<'a> {
    fn new(now: Steps<'a>, recorded: &'a [RecordedStep], last: &'a Suspension) -> Result<Self, Stuck> {
        let reference = last.jump.as_deref().unwrap_or(&last.step);
        let Some(at) = recorded.iter().position(|step| step.name == reference) else {
            return Err(Stuck::NoSuchStep { saga: now.saga.to_owned(), step: reference.to_owned() });
        };
        let (passed, ahead) = recorded.split_at(at + usize::from(last.jump.is_none()));
        let mut classes = vec![Class::New; now.steps.len()];
        for (steps, class) in [(passed, Class::Passed), (ahead, Class::Ahead)] {
            for at in steps.iter().filter_map(|step| now.position(step)) {
                classes[at] = class;
            }
        }
        let change = Self { now, last, reference, passed, ahead, classes };
        change.check_names()?;
        Ok(change)
    }

    fn resume(&self) -> Result<usize, Stuck> {
        let at = match (self.position_of_reference(), &self.last.jump) {
            (Some(target), Some(_)) => self.with_its_wait(target),
            (Some(completed), None) => {
                let following = &self.classes[completed + 1..];
                let at =
                    completed + 1 + following.iter().take_while(|class| **class == Class::Passed).count();
                if self.is_wait() { self.inserted_before(completed).unwrap_or(at) } else { at }
            }
            (None, None) if self.is_wait() => match self.ahead.first().and_then(|step| self.position(step)) {
                Some(step) => self.inserted_before(step).unwrap_or(step),
                None => self.instead_of_removed()?,
            },
            (None, _) => self.instead_of_removed()?,
        };
        self.check_order(at)
    }

    /// Whether a wait is the step that completed. It is a part of the step after it, and has no code: a step before it
    /// is still ahead.
    fn is_wait(&self) -> bool {
        self.last.jump.is_none() && self.passed.last().is_some_and(|step| step.kind == StepKind::Wait)
    }

    /// The first of the new steps directly before this one, if there are any.
    fn inserted_before(&self, at: usize) -> Option<usize> {
        let inserted = self.classes[..at].iter().rev().take_while(|class| **class == Class::New).count();
        (inserted > 0).then(|| at - inserted)
    }

    fn position(&self, step: &RecordedStep) -> Option<usize> {
        self.now.position(step)
    }

    fn position_of_reference(&self) -> Option<usize> {
        let recorded = self.passed.iter().chain(self.ahead).find(|step| step.name == self.reference);
        recorded.and_then(|step| self.position(step))
    }

    /// Checks that every step that may have run has its recorded name in the definition at hand, since a newer program
    /// may have renamed it. Its values and its rollback are recorded under that name. After a jump, steps ahead may
    /// have run, too.
    fn check_names(&self) -> Result<(), Stuck> {
        let is_renamed = |step: &&RecordedStep| {
            !self.now.positions.contains_key(step.name.as_str()) && self.position(step).is_some()
        };
        let looped = if self.last.jump.is_some() { self.ahead } else { &[] };
        match self.passed.iter().chain(looped).find(is_renamed) {
            None => Ok(()),
            Some(step) => Err(renamed_since(self.now.saga, step)),
        }
    }

    /// The position of a run whose reference was removed, or the wait of a step together with that: the first step ahead
    /// that is left. A new step directly before it is an error, since it may be the removed one under another name.
    fn instead_of_removed(&self) -> Result<usize, Stuck> {
        let left = self.ahead.iter().find_map(|step| self.position(step));
        let at = left.map_or(self.classes.len(), |at| self.with_its_wait(at));
        match at.checked_sub(1).filter(|before| self.classes[*before] == Class::New) {
            None => Ok(at),
            Some(new) => Err(Stuck::Ambiguous {
                saga: self.now.saga.to_owned(),
                // A wait has the name of its step, which the user knows.
                step: match self.ahead.first().filter(|_| self.is_wait()) {
                    Some(step) => step.name.clone(),
                    None => self.reference.to_owned(),
                },
                instead: self.now.steps[new].0.to_owned(),
            }),
        }
    }

    /// The wait of a step, if it is new; otherwise the step.
    fn with_its_wait(&self, at: usize) -> usize {
        let is_new_wait = |before: &usize| {
            self.now.steps[*before].1 == StepKind::Wait && self.classes[*before] == Class::New
        };
        at.checked_sub(1).filter(is_new_wait).unwrap_or(at)
    }

    /// Checks that no passed step follows the position, and no step ahead precedes it.
    fn check_order(&self, at: usize) -> Result<usize, Stuck> {
        let moved = |step: &RecordedStep, again| Stuck::Moved {
            saga: self.now.saga.to_owned(),
            step: step.name.clone(),
            after: self.last.step.clone(),
            what: if again { "run again" } else { "be skipped" },
        };
        // A wait that is over is not repeated, also if a step inserted before it runs now.
        let repeats = |step: &RecordedStep| step.name != self.reference || !self.is_wait();
        let again = |step: &&RecordedStep| {
            repeats(step) && self.position(step).is_some_and(|position| position >= at)
        };
        let skipped = |step: &&RecordedStep| self.position(step).is_some_and(|position| position < at);
        match (self.ahead.iter().find(skipped), self.passed.iter().find(again)) {
            (Some(step), _) => Err(moved(step, false)),
            (None, Some(step)) => Err(moved(step, true)),
            (None, None) => Ok(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{Lineage, StepDefinition};

    /// A definition with steps as `name`, `name=earlier name`, or `?name` for a wait.
    fn definition(steps: &str) -> Definition {
        let step = |text: &str| {
            let (name, was) = text.split_once('=').map_or((text, None), |(name, was)| (name, Some(was)));
            let was: Vec<&'static str> = was.into_iter().map(|was| &*was.to_owned().leak()).collect();
            let kind = if name.starts_with('?') { StepKind::Wait } else { StepKind::Code };
            StepDefinition {
                name: name.to_owned().into(),
                was: was.leak(),
                ..StepDefinition::new("").of_kind(kind)
            }
        };
        let steps: Vec<_> = steps.split_whitespace().map(step).collect();
        Definition { steps: steps.into(), ..Definition::new("saga", "topic", &[]) }
    }

    fn run(recorded: &[RecordedStep]) -> Run {
        let lineage = Lineage::root(Uuid::from_u128(1)).child(Uuid::from_u128(2));
        Run { recorded: Some(recorded.into()), ..Run::new(lineage, Uuid::from_u128(3), "saga[w]") }
    }

    /// The position under `now` of a run that completed `step` under `then`: the step, `end`, or why it is stuck.
    fn resumed(then: &str, step: &str, now: &str) -> String {
        let (step, jump) = step.split_once("->").map_or((step, None), |(step, jump)| (step, Some(jump)));
        let last = Suspension {
            step: step.into(),
            jump: jump.map(Into::into),
            iteration: 0,
            handler_iteration: None,
        };
        let (recorded, now) = (definition(then).recorded_steps(), definition(now));
        match resume(&now, &run(&recorded), &last) {
            Ok(at) => now.steps.get(at).map_or("end".into(), |step| step.name.to_string()),
            Err(stuck) => format!("stuck: {stuck}"),
        }
    }

    #[test]
    fn unchanged_definition_continues_with_the_following_step() {
        for (step, next) in [("one", "two"), ("three", "end"), ("three->one", "one"), ("two->two", "two")] {
            assert_eq!(resumed("one two three", step, "one two three"), next);
        }
    }

    #[test]
    fn inserted_step_runs_only_if_it_follows() {
        assert_eq!(resumed("one two three", "two", "one two new three"), "new");
        assert_eq!(resumed("one two three", "two", "one new two three"), "three");
        assert_eq!(resumed("one two", "two", "one two new"), "new");
        assert_eq!(resumed("one two three", "two->three", "one two new three"), "three");
        assert_eq!(resumed("one two three", "three->one", "new one two three"), "one");
    }

    #[test]
    fn renamed_step_is_the_same_step() {
        assert_eq!(resumed("one two three", "two", "one two drei=three"), "drei");
        assert_eq!(resumed("one two three", "two", "one zwei=two new three"), "new");
        assert_eq!(resumed("one two three", "three->two", "one zwei=two three"), "zwei");
    }

    #[test]
    fn step_renamed_by_a_newer_program_is_known_by_its_former_name_only_while_it_is_ahead() {
        assert_eq!(resumed("one two drei=three", "two", "one two three"), "three");
        assert!(resumed("one two drei=three", "drei->drei", "one two three").contains("no step `drei`"));
        assert!(
            resumed("one two drei=three", "two", "one three two")
                .contains("`drei` was moved and would be skipped")
        );
        assert_eq!(
            resumed("one zwei=two three", "zwei", "one two three"),
            "stuck: saga `saga` has no step `zwei`, which was `two` before a newer program renamed it; that program, or \
             one with `#[step(was = ..)]`, can continue the run"
        );
    }

    #[test]
    fn removed_next_step_gives_way_to_its_successor() {
        assert_eq!(resumed("one two three four", "two", "one two four"), "four");
        assert_eq!(resumed("one two three", "two", "one two"), "end");
        assert_eq!(resumed("one two three four", "one->three", "one two four"), "four");
        assert_eq!(
            resumed("one two three four", "one->three", "one two new four"),
            "stuck: saga `saga` has no step `three` any more, where the run stands, and `new` stands in its place; \
             if that is the same step under another name, say so: `#[step(was = \"three\")]`"
        );
    }

    #[test]
    fn removed_completed_step_stays_done() {
        assert_eq!(resumed("one two three", "two", "one three"), "three");
        assert_eq!(resumed("one two", "two", "one"), "end");
        assert_eq!(resumed("one two three", "one", "two three"), "two");
        assert!(
            resumed("one two three", "two", "one new three")
                .starts_with("stuck: saga `saga` has no step `two`")
        );
    }

    #[test]
    fn reordered_completed_steps_stay_done() {
        assert_eq!(resumed("one two three", "two", "two one three"), "three");
        assert_eq!(
            resumed("one two three", "two", "two new one three"),
            "stuck: saga `saga`: step `one` was moved and would run again after `two`; a program with the former order \
             can finish the run"
        );
    }

    #[test]
    fn reordered_following_steps_take_the_new_order() {
        assert_eq!(resumed("one two three four", "two", "one two four three"), "four");
        let skipped = "stuck: saga `saga`: step `three` was moved and would be skipped after `two`; a program with the \
                       former order can finish the run";
        assert_eq!(resumed("one two three four", "two", "one three two four"), skipped);
        assert!(
            resumed("one two three", "one->two", "one three two")
                .contains("`three` was moved and would be skipped")
        );
    }

    #[test]
    fn added_or_removed_wait_is_neither_skipped_nor_doubled() {
        assert_eq!(resumed("one two", "one", "one ?two two"), "?two");
        assert_eq!(resumed("one ?two two", "?two", "one two"), "two");
        assert_eq!(resumed("one ?two two", "one", "one two"), "two");
        assert_eq!(resumed("one two three", "three->two", "one ?two two three"), "?two");
        assert_eq!(resumed("one ?two two three", "three->?two", "one two three"), "two");
        assert_eq!(resumed("one two three", "two", "one ?three three"), "?three");
    }

    #[test]
    fn step_inserted_before_a_wait_that_is_over_runs() {
        assert_eq!(resumed("one ?two two", "?two", "one new ?two two"), "new");
        assert_eq!(resumed("one ?two two", "?two", "one new newer ?two two"), "new");
        assert_eq!(resumed("one ?two two", "?two", "one ?new new ?two two"), "?new");
        assert_eq!(resumed("one ?two two", "?two", "one new two"), "new", "without its wait");
        assert_eq!(resumed("one ?two two", "?two", "new one ?two two"), "two");
        assert_eq!(resumed("one ?two two", "?two", "one ?two two new"), "two");
        assert_eq!(resumed("one ?two two three", "?two", "one three"), "three");
        assert!(
            resumed("one ?two two three", "?two", "one new three").contains("no step `two` any more"),
            "the new step may be the removed one"
        );
    }

    #[test]
    fn wait_that_is_over_is_not_repeated_behind_an_inserted_step() {
        let now = definition("one new ?two two");
        let after = |step: &str, completions: [(&str, u32); 2]| {
            let last = Suspension { step: step.into(), jump: None, iteration: 0, handler_iteration: None };
            let completions = completions.map(|(step, count)| (step.to_owned(), count)).into();
            let run = Run { recorded: None, completions, ..run(&[]) };
            now.steps[resume(&now, &run, &last).unwrap()].name.to_string()
        };
        assert_eq!(after("new", [("?two", 1), ("two", 0)]), "two");
        assert_eq!(after("new", [("?two", 1), ("two", 1)]), "?two", "that wait was for the former iteration");
        assert_eq!(after("new", [("?two", 0), ("two", 1)]), "?two", "the wait is new");
    }

    #[test]
    fn merged_steps_are_stuck_between_them() {
        let mut now = definition("both three");
        now.steps.to_mut()[0].was = &["one", "two"];
        let recorded = definition("one two three").recorded_steps();
        let last =
            |step: &str| Suspension { step: step.into(), jump: None, iteration: 0, handler_iteration: None };
        assert!(matches!(resume(&now, &run(&recorded), &last("one")), Err(Stuck::Moved { .. })));
        assert_eq!(resume(&now, &run(&recorded), &last("two")), Ok(1));
    }

    #[test]
    fn needed_value_of_a_step_that_will_not_run_is_stuck() {
        let mut now = definition("one price=cost two three");
        now.steps.to_mut()[3].needs = &["price"];
        let mut run = run(&definition("one two three").recorded_steps());
        let last = Suspension { step: "two".into(), jump: None, iteration: 0, handler_iteration: None };
        let stuck = resume(&now, &run, &last).unwrap_err().to_string();
        assert!(stuck.contains("step `three` takes what `price` returns, which did not run"), "{stuck}");
        run.outputs.insert("cost".into(), 7.into());
        assert_eq!(resume(&now, &run, &last), Ok(3), "returned under its former name");
        run.outputs.clear();
        let earlier = Suspension { step: "one".into(), ..last };
        assert_eq!(resume(&now, &run, &earlier), Ok(1), "it will run");
    }

    #[test]
    fn record_without_the_step_is_stuck() {
        assert!(resumed("one two", "other", "one two").contains("has no step `other`"));
    }
}
