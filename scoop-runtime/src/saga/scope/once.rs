//! The beginning of a step that runs at most once.
//!
//! The generated code records it after it has decoded the values and the signal of the step. So a program that cannot decode
//! them hands the run over, and no step has begun.

use scoop_core::{Definition, Error, Failure, Interrupted, Result, Run};

use super::Scope;
use crate::model::format::system_time;
use crate::store::{BegunStep, StepBeginning};

impl Scope<'_> {
    /// Records that the step begins: after its values were decoded, and before its code runs. Fails if a step of the run
    /// has begun under an earlier claim and did not complete.
    pub(crate) async fn begin_once(&mut self) -> Result<()> {
        self.has_begun = true;
        let (run, step) = (self.site.run, self.site.step);
        match self.services.store.begin_step(self.site.key, instance(run), step).await {
            Ok(Some(StepBeginning::Now)) => Ok(()),
            Ok(Some(StepBeginning::Before(begun))) => {
                Err(Error::failure(interrupted(self.site.definition, run, &begun)).into_permanent())
            }
            Ok(None) => Err(Error::infrastructure(format!("step `{step}` was taken over"))),
            Err(error) => Err(Error::infrastructure(format!(
                "the beginning of step `{step}` could not be recorded: {error}"
            ))),
        }
    }
}

/// The number of the next step of the run among all that it completes.
pub(crate) fn instance(run: &Run) -> i32 {
    i32::try_from(run.suspensions).unwrap_or(i32::MAX)
}

/// The failure of a run that has begun this step. It has the name of the step in this definition, if that has the step.
pub(crate) fn interrupted(definition: &Definition, run: &Run, begun: &BegunStep) -> Failure {
    let known = definition.step_index(&begun.step).map(|step| &*definition.steps[step].name);
    let step = known.unwrap_or(&begun.step);
    Interrupted::new(&*definition.saga, step, system_time(begun.at)).to_failure(&run.source)
}
