//! The steps with failed attempts since the newest event of a run, by programs that may have different definitions:
//! which former attempts count. The store counts them (`scoop.tried`), and the retry policy of the step says how many
//! there may be.

use std::sync::Arc;

use crate::changed_definition::{next_under, position_in};
use crate::{Action, Continuation, Definition, RecordedStep, Run};

/// The failed attempts since the newest event of a run, in terms of the definition at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptHistory {
    /// Whether the newest attempts were of the next step; then their number counts for it.
    pub counts: bool,
    /// Whether the next step was tried.
    pub next: bool,
    /// The other steps that were tried and are in the definition at hand.
    pub others: Vec<usize>,
}

impl AttemptHistory {
    /// The attempts by programs with these definitions, the newest one last; `None` is the definition at hand.
    ///
    /// The next move of a rollback, or after children have failed, follows from the recorded history alone, and so is
    /// the same under each definition. The same is assumed of attempts by unknown programs.
    pub fn of(definition: &Definition, run: &Run, under: &[Option<Arc<[RecordedStep]>>]) -> Self {
        let next = match Continuation::of(definition, run) {
            Ok(Continuation::Call(call)) => match call.action() {
                Action::Invoke { step, .. } => Some(*step),
                Action::Compensate { .. } | Action::HandleChildFailure { .. } => None,
            },
            Ok(Continuation::Record(_)) | Err(_) => None,
        };
        let Some(next) = next.filter(|_| !under.is_empty()) else {
            return Self { counts: true, next: true, others: vec![] };
        };
        let position = |steps: &Option<Arc<[RecordedStep]>>| match steps {
            None => Some(next),
            Some(steps) => position_in(definition, next_under(definition, run, steps)?),
        };
        let tried: Vec<_> = under.iter().map(position).collect();
        let mut others: Vec<_> = tried.iter().copied().flatten().filter(|step| *step != next).collect();
        others.sort_unstable();
        others.dedup();
        Self { counts: tried.last() == Some(&Some(next)), next: tried.contains(&Some(next)), others }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{Lineage, StepDefinition, Suspension};

    fn definition(steps: &[(&'static str, &'static [&'static str])]) -> Definition {
        let steps: Vec<_> = steps.iter().map(|(name, was)| StepDefinition::new(name).formerly(was)).collect();
        Definition { steps: steps.into(), ..Definition::new("saga", "topic", &[]) }
    }

    /// The attempts of a run that has completed `a` under the definition `a b c`.
    fn tried(at_hand: &Definition, under: &[&Definition]) -> AttemptHistory {
        let lineage = Lineage::root(Uuid::from_u128(1)).child(Uuid::from_u128(2));
        let completed = definition(&[("a", &[]), ("b", &[]), ("c", &[])]);
        let recorded = Some(completed.recorded_steps().into()).filter(|_| *at_hand != completed);
        let last = Suspension { step: "a".into(), jump: None, iteration: 0, handler_iteration: None };
        let run = Run { recorded, last: Some(last), ..Run::new(lineage, Uuid::from_u128(3), "saga[w]") };
        let steps = |it: &&Definition| Some(it.recorded_steps().into()).filter(|_| *it != at_hand);
        AttemptHistory::of(at_hand, &run, &under.iter().map(steps).collect::<Vec<_>>())
    }

    fn of_next(counts: bool, next: bool, others: &[usize]) -> AttemptHistory {
        AttemptHistory { counts, next, others: others.into() }
    }

    #[test]
    fn attempts_count_for_the_same_step_only() {
        let original = definition(&[("a", &[]), ("b", &[]), ("c", &[])]);
        let inserted = definition(&[("a", &[]), ("new", &[]), ("b", &[]), ("c", &[])]);
        let renamed = definition(&[("a", &[]), ("beta", &["b"]), ("c", &[])]);
        let removed = definition(&[("a", &[]), ("c", &[])]);
        assert_eq!(tried(&original, &[&original]), of_next(true, true, &[]));
        assert_eq!(tried(&renamed, &[&original]), of_next(true, true, &[]));
        assert_eq!(tried(&original, &[&renamed]), of_next(true, true, &[]));
        assert_eq!(tried(&inserted, &[&original]), of_next(false, false, &[2]));
        assert_eq!(tried(&inserted, &[&renamed]), of_next(false, false, &[2]));
        assert_eq!(tried(&removed, &[&original]), of_next(false, false, &[]));
        assert_eq!(tried(&original, &[&original, &inserted]), of_next(false, true, &[]));
        assert_eq!(tried(&inserted, &[&original, &inserted]), of_next(true, true, &[2]));
        assert_eq!(tried(&inserted, &[&original, &removed]), of_next(false, false, &[2, 3]));
    }

    #[test]
    fn attempts_by_an_unknown_program_count() {
        assert_eq!(tried(&definition(&[("a", &[]), ("new", &[])]), &[]), of_next(true, true, &[]));
    }

    #[test]
    fn attempts_of_the_first_step_are_of_the_step_that_was_first() {
        let lineage = Lineage::root(Uuid::from_u128(1)).child(Uuid::from_u128(2));
        let run = Run::new(lineage, Uuid::from_u128(3), "saga[w]");
        let (now, then) = (definition(&[("new", &[]), ("a", &[])]), definition(&[("a", &[])]));
        let tried = AttemptHistory::of(&now, &run, &[Some(then.recorded_steps().into())]);
        assert_eq!(tried, of_next(false, false, &[1]));
    }
}
