//! What a change of a saga does to the runs that are under way, before any of them meets it.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::changed_definition::{position_in, resume};
use crate::{Definition, Lineage, RecordedStep, Run, Stuck, Suspension};

impl Definition {
    /// Why runs that began under a definition with these steps cannot go on under this one: each reason once, in the order of
    /// the steps after which they stop.
    ///
    /// A run may have completed any of the steps, and each of them once; jumps are not considered. `returns` says whether a
    /// step returned a value then.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// use scoop::{Definition, StepDefinition};
    ///
    /// const THEN: &[StepDefinition] = &[StepDefinition::new("reserve"), StepDefinition::new("ship")];
    /// const NOW: &[StepDefinition] = &[StepDefinition::new("book"), StepDefinition::new("ship")];
    /// let then = Definition::new("checkout", "orders.placed", THEN);
    /// let now = Definition::new("checkout", "orders.placed", NOW);
    /// let none = |_: &str| false;
    /// assert!(now.strands(&then.recorded_steps(), none)[0].to_string().contains("#[step(was = \"reserve\")]"));
    /// assert!(then.strands(&then.recorded_steps(), none).is_empty());
    /// ```
    pub fn strands(&self, recorded: &[RecordedStep], returns: impl Fn(&str) -> bool) -> Vec<Stuck> {
        let after = |step: &RecordedStep| self.strands_after(recorded, &step.name, None, &returns);
        let mut found: Vec<Stuck> = vec![];
        for stuck in recorded.iter().flat_map(after) {
            if !found.contains(&stuck) {
                found.push(stuck);
            }
        }
        found
    }

    /// The same for a run that has come to this step, and perhaps chosen where to `jump` from there: why it cannot go on, and
    /// why it could not be undone. Nothing if the recorded steps do not have the step.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// use scoop::{Definition, StepDefinition};
    ///
    /// const THEN: &[StepDefinition] = &[StepDefinition::new("reserve"), StepDefinition::new("ship")];
    /// const NOW: &[StepDefinition] = &[StepDefinition::new("book"), StepDefinition::new("ship")];
    /// let then = Definition::new("checkout", "orders.placed", THEN).recorded_steps();
    /// let now = Definition::new("checkout", "orders.placed", NOW);
    /// let stuck_after = |step| now.strands_after(&then, step, None, &|_| false).len();
    /// assert_eq!((stuck_after("reserve"), stuck_after("ship")), (1, 0));
    /// ```
    pub fn strands_after(
        &self,
        recorded: &[RecordedStep],
        step: &str,
        jump: Option<&str>,
        returns: &impl Fn(&str) -> bool,
    ) -> Vec<Stuck> {
        let Some(at) = recorded.iter().position(|it| it.name == step) else { return vec![] };
        let mut run = self.run_after(recorded, at);
        run.outputs.retain(|step, _| returns(step));
        let last = Suspension {
            step: step.to_owned(),
            jump: jump.map(str::to_owned),
            iteration: 0,
            handler_iteration: None,
        };
        let forward = resume(self, &run, &last).err();
        let lost = |it: &&RecordedStep| it.compensated && position_in(self, it).is_none();
        let backward = recorded[..=at].iter().filter(lost).map(|it| {
            let (saga, step) = (self.saga.to_string(), it.name.clone());
            Stuck::NoCompensation { saga, step }
        });
        forward.into_iter().chain(backward).collect()
    }

    fn run_after(&self, recorded: &[RecordedStep], at: usize) -> Run {
        let lineage = Lineage::root(Uuid::nil()).child(Uuid::max());
        let completed = || recorded[..=at].iter().map(|step| step.name.clone());
        Run {
            recorded: Some(Arc::from(recorded)),
            completions: completed().map(|step| (step, 1)).collect(),
            outputs: completed().map(|step| (step, Value::Null)).collect(),
            ..Run::new(lineage, Uuid::nil(), &*self.saga)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StepDefinition;

    fn definition(steps: Vec<StepDefinition>) -> Definition {
        Definition { steps: steps.into(), ..Definition::new("saga", "topic", &[]) }
    }

    fn plain(names: &[&'static str]) -> Definition {
        definition(names.iter().map(|name| StepDefinition::new(name)).collect())
    }

    fn strands(then: &Definition, now: &Definition) -> Vec<String> {
        now.strands(&then.recorded_steps(), |step| step != "silent").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn change_that_runs_can_follow_strands_none() {
        let then = plain(&["a", "b", "c"]);
        for now in [plain(&["a", "b", "c", "d"]), plain(&["a", "c"]), plain(&["new", "a", "b", "c"])] {
            assert_eq!(strands(&then, &now), [""; 0], "{now:?}");
        }
        let renamed = definition(vec![
            StepDefinition::new("a"),
            StepDefinition::new("beta").formerly(&["b"]),
            StepDefinition::new("c"),
        ]);
        assert_eq!(strands(&then, &renamed), [""; 0]);
    }

    #[test]
    fn each_reason_is_told_once() {
        let then = plain(&["a", "b", "c"]);
        let [replaced] = &strands(&then, &plain(&["a", "beta", "c"]))[..] else { panic!("one reason") };
        assert!(replaced.contains("`#[step(was = \"b\")]`"), "{replaced}");
        let moved = strands(&then, &plain(&["c", "a", "b"]));
        assert!(!moved.is_empty() && moved.iter().all(|why| why.contains("step `c` was moved")), "{moved:?}");
    }

    #[test]
    fn removed_compensation_strands_the_rollback() {
        let then = definition(vec![StepDefinition::new("a").compensated(), StepDefinition::new("b")]);
        let [why] = &strands(&then, &plain(&["b"]))[..] else { panic!("one reason") };
        assert!(why.contains("has no step `a`, which has a compensation"), "{why}");
    }

    #[test]
    fn run_is_stranded_by_the_steps_that_it_has_completed() {
        let then = definition(vec![
            StepDefinition::new("a").compensated(),
            StepDefinition::new("b"),
            StepDefinition::new("c"),
        ]);
        let (recorded, now) = (then.recorded_steps(), plain(&["b", "c"]));
        let after = |step, jump| now.strands_after(&recorded, step, jump, &|_| true);
        let lost = [Stuck::NoCompensation { saga: "saga".into(), step: "a".into() }];
        for (step, jump) in [("a", None), ("b", None), ("c", None), ("a", Some("c")), ("c", Some("b"))] {
            assert_eq!(after(step, jump), lost, "{step} {jump:?}");
        }
        assert_eq!(after("z", None), []);
    }

    #[test]
    fn value_of_an_inserted_step_strands_runs_behind_it() {
        let then = plain(&["a", "b"]);
        let now = definition(vec![
            StepDefinition::new("new"),
            StepDefinition::new("a"),
            StepDefinition::new("b").needing(&["new"]),
        ]);
        let [why] = &strands(&then, &now)[..] else { panic!("one reason") };
        assert!(why.contains("takes what `new` returns"), "{why}");
    }

    #[test]
    fn value_that_a_step_did_not_return_strands_runs_behind_it() {
        let then = plain(&["silent", "b"]);
        let now =
            definition(vec![StepDefinition::new("silent"), StepDefinition::new("b").needing(&["silent"])]);
        let [why] = &strands(&then, &now)[..] else { panic!("one reason") };
        assert!(why.contains("takes what `silent` returns"), "{why}");
    }
}
