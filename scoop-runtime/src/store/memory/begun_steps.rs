//! The record of the steps that run at most once, see `step_begin.sql`.

use super::MemoryStore;
use super::state::{BegunStepRow, State};
use crate::store::{BegunStep, BegunStepStorage, ClaimKey, StepBeginning};

impl BegunStepStorage for MemoryStore {
    async fn begin_step(
        &self,
        key: ClaimKey,
        completed: i32,
        step: &str,
    ) -> sqlx::Result<Option<StepBeginning>> {
        self.run("begin_step", |state| {
            if state.claimed_under(key).is_none() {
                return Ok(None);
            }
            if let Some(known) = state.begun_step(key, completed) {
                if known.epoch == key.epoch {
                    return Ok(Some(StepBeginning::Now));
                }
                let begun = BegunStep { step: known.step.clone(), at: known.at };
                return Ok(Some(StepBeginning::Before(begun)));
            }
            let row = BegunStepRow {
                run: key.id,
                instance: completed,
                step: step.to_owned(),
                epoch: key.epoch,
                at: state.now(),
            };
            state.hierarchies.entry(key.root).or_default().begun_steps.push(row);
            Ok(Some(StepBeginning::Now))
        })
        .await
    }

    async fn find_begun_step(&self, key: ClaimKey, completed: i32) -> sqlx::Result<Option<BegunStep>> {
        self.run("find_begun_step", |state| {
            let known = state.begun_step(key, completed);
            Ok(known.map(|known| BegunStep { step: known.step.clone(), at: known.at }))
        })
        .await
    }
}

impl State {
    fn begun_step(&self, key: ClaimKey, completed: i32) -> Option<&BegunStepRow> {
        let mut begun = self.hierarchies.get(&key.root)?.begun_steps.iter();
        begun.find(|begun| begun.run == key.id && begun.instance == completed)
    }
}
