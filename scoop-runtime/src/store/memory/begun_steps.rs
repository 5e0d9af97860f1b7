//! The record of the steps that run at most once, see `step_begin.sql`.

use super::MemoryStore;
use super::state::BegunStep;
use crate::bug::{Bug, is_injected};
use crate::store::{BegunStepStorage, ClaimKey, StepBeginning};

impl BegunStepStorage for MemoryStore {
    async fn begin_step(
        &self,
        key: ClaimKey,
        instance: i32,
        names: &[String],
    ) -> sqlx::Result<Option<StepBeginning>> {
        self.run("begin_step", |state| {
            if state.claimed_under(key).is_none() {
                return Ok(None);
            }
            let (now, epoch) = (state.now(), key.epoch);
            let begun = &mut state.hierarchies.entry(key.root).or_default().begun_steps;
            let known = begun
                .iter()
                .find(|it| it.run == key.id && it.instance == instance && names.contains(&it.step));
            if let Some(known) = known {
                let begins = known.epoch == epoch || is_injected(Bug::BeginTwice);
                return Ok(Some(if begins { StepBeginning::Now } else { StepBeginning::Before(known.at) }));
            }
            let step = names.first().cloned().unwrap_or_default();
            begun.push(BegunStep { run: key.id, instance, step, epoch, at: now });
            Ok(Some(StepBeginning::Now))
        })
        .await
    }
}
