//! The topics on which the steps of a saga launch messages, as far as this process knows. A launch costs one look at a set; only
//! the first one on a topic is recorded.

use std::collections::HashSet;

use scoop_core::{Definition, StepKind};

use super::registry::RunnableSaga;
use crate::RuntimeError;
use crate::error::ErrorKind;
use crate::model::launched_topics::StepTopic;
use crate::util::sync::{Mutex, lock};

/// The number of topics of one step that are recorded at most: a program may compute their names.
const TOPICS_MAX: usize = 1_000;

/// The topics of each step that are recorded, or about to be, by the position of the step.
#[derive(Default)]
pub(crate) struct KnownLaunches(Mutex<Vec<HashSet<String>>>);

impl KnownLaunches {
    /// Whether the topic is new for the step at this position, which knows it from now on.
    fn add(&self, step: usize, topic: &str) -> bool {
        let mut steps = lock(&self.0);
        if steps.len() <= step {
            steps.resize_with(step + 1, HashSet::new);
        }
        let topics = &mut steps[step];
        !topics.contains(topic) && topics.len() < TOPICS_MAX && topics.insert(topic.to_owned())
    }

    fn clear(&self) {
        lock(&self.0).clear();
    }
}

impl RunnableSaga {
    /// A launch on this topic by the step at this position, if it has to be recorded.
    pub(crate) fn note_launch(&self, step: usize, topic: &str) -> Option<StepTopic> {
        let step = position_of_code(&self.definition, step);
        self.launches.add(step, topic).then(|| self.step_topic(step, topic))
    }

    /// Whether the step at this position declares launches on this topic, or declares none at all.
    pub(crate) fn admits_launch(&self, step: usize, topic: &str) -> bool {
        self.handler.launches(step).is_none_or(|declared| declared.contains(&topic))
    }

    pub(crate) fn undeclared_launch(&self, step: usize, topic: &str, message: String) -> RuntimeError {
        let StepTopic { saga, step, topic } =
            self.step_topic(position_of_code(&self.definition, step), topic);
        RuntimeError::from(ErrorKind::UndeclaredLaunch { saga, step, topic, message })
    }

    pub(crate) fn declared_launches(&self) -> impl Iterator<Item = StepTopic> {
        let is_code = |step: &usize| self.definition.steps[*step].kind == StepKind::Code;
        (0..self.definition.steps.len()).filter(is_code).flat_map(move |step| {
            let topics = self.handler.launches(step).unwrap_or_default();
            topics.iter().map(move |topic| self.step_topic(step, topic))
        })
    }

    fn step_topic(&self, step: usize, topic: &str) -> StepTopic {
        let Definition { saga, steps, .. } = &self.definition;
        let step = steps.get(step).map_or_else(String::new, |step| step.name.to_string());
        StepTopic { saga: saga.to_string(), step, topic: topic.to_owned() }
    }

    /// From now on, only these launches of the saga count as recorded: steps by their names, and topics.
    pub(crate) fn know_launches<'a>(&self, recorded: impl Iterator<Item = (&'a str, &'a str)>) {
        self.launches.clear();
        for (step, topic) in recorded {
            if let Some(step) = self.definition.steps.iter().position(|it| it.name == step) {
                self.launches.add(step, topic);
            }
        }
    }
}

/// The position of the code of a step: its wait comes before that, and its cleanup after that.
fn position_of_code(definition: &Definition, step: usize) -> usize {
    match definition.steps.get(step).map(|it| it.kind) {
        Some(StepKind::Wait) => step + 1,
        Some(StepKind::Finally) => step.saturating_sub(1),
        Some(StepKind::Code | StepKind::Decide) | None => step,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use scoop_core::StepDefinition;

    use super::*;
    use crate::saga::absent::AbsentSaga;

    fn saga() -> RunnableSaga {
        let kinds = [
            ("ship (waiting)", StepKind::Wait),
            ("ship", StepKind::Code),
            ("ship (finally)", StepKind::Finally),
        ];
        let steps = kinds.map(|(name, kind)| StepDefinition::new(name).of_kind(kind));
        let definition =
            Definition { saga: "order".into(), topic: "orders".into(), steps: steps.to_vec().into() };
        RunnableSaga::new(definition, Arc::new(AbsentSaga))
    }

    #[test]
    fn launch_of_a_known_topic_is_not_noted_again() {
        let saga = saga();
        let noted = saga.note_launch(1, "parcels").unwrap();
        assert_eq!((&*noted.saga, &*noted.step, &*noted.topic), ("order", "ship", "parcels"));
        assert_eq!(saga.note_launch(1, "parcels"), None);
        saga.know_launches([("ship", "letters"), ("gone", "parcels")].into_iter());
        assert_eq!(saga.note_launch(1, "letters"), None);
        assert!(saga.note_launch(1, "parcels").is_some(), "it is not recorded any more");
    }

    #[test]
    fn launch_while_waiting_or_cleaning_up_counts_as_one_of_the_step() {
        let saga = saga();
        assert_eq!(saga.note_launch(2, "parcels").unwrap().step, "ship");
        assert_eq!(saga.note_launch(0, "parcels"), None);
    }

    #[test]
    fn number_of_topics_of_a_step_is_limited() {
        let saga = saga();
        let noted = (0..=TOPICS_MAX).filter_map(|nth| saga.note_launch(1, &format!("tenant-{nth}")));
        assert_eq!(noted.count(), TOPICS_MAX);
    }
}
