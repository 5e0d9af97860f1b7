//! Folds the state of an entity from its events, page by page.
//!
//! A rebuild folds without a lock, since events never change. It locks an entity only if at most one page is left, and then
//! writes the state of exactly the locked version.

use std::any::Any;

use scoop_core::EntityType;
use serde_json::Value;

use crate::model::entity::{StoredEntityEvent, Unfolded};
use crate::util::boundary::{self, DropGuarded};
use crate::util::payload::storable;

/// The state after the events so far.
pub(crate) struct EntityFold {
    entity: EntityType,
    state: DropGuarded<dyn Any + Send + Sync>,
    /// The version after the newest of them.
    pub(crate) version: i64,
}

impl EntityFold {
    /// Before the first event.
    pub(crate) fn new(entity: EntityType) -> Result<Self, Unfolded> {
        Self::resume(entity, None, 0)
    }

    /// After this version, with the state of it.
    pub(crate) fn resume(entity: EntityType, state: Option<&Value>, version: i64) -> Result<Self, Unfolded> {
        let read = boundary::run(entity.name(), || entity.read(state));
        let unfolded =
            |error: String| Unfolded { version, why: format!("its state cannot be read: {error}") };
        let state = read.map_err(|panic| unfolded(panic.to_string()))?;
        let state = state.map_err(|error| unfolded(error.to_string()))?;
        Ok(Self { entity, state: DropGuarded::new(state), version })
    }

    /// Applies the next events.
    pub(crate) fn apply(&mut self, events: Vec<StoredEntityEvent>) -> Result<(), Unfolded> {
        for StoredEntityEvent { version, message, event, .. } in events {
            let unfolded = |why| Err(Unfolded { version, why });
            if version != self.version + 1 {
                return unfolded(format!("the event of version {} is missing", self.version + 1));
            }
            let Some((topic, payload)) = event else {
                return unfolded(format!("the message {message} of the event is missing"));
            };
            let state = self.state.get_mut();
            match boundary::run(self.entity.name(), || self.entity.apply(state, &topic, &payload)) {
                Ok(Ok(true)) => self.version = version,
                Ok(Ok(false)) => {
                    return unfolded(format!(
                        "it has no application of events on topic `{topic}`; write one, for an event that it has had"
                    ));
                }
                Ok(Err(error)) => {
                    return unfolded(format!("the event on topic `{topic}` does not fit its type: {error}"));
                }
                Err(panic) => {
                    let text = panic.message;
                    return unfolded(format!(
                        "panic in the application of the event on topic `{topic}`: {text}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The state as JSON of at most so many bytes.
    pub(crate) fn written(&self, bytes_max: usize) -> Result<Value, Unfolded> {
        let unfolded = |why: String| Unfolded { version: self.version, why };
        let written = boundary::run(self.entity.name(), || self.entity.write(self.state.get()));
        let written = written.map_err(|panic| unfolded(panic.to_string()))?;
        let written = written.map_err(|error| unfolded(format!("its state cannot be written: {error}")))?;
        storable(written, bytes_max, || "its state".into()).map_err(|error| unfolded(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use scoop_core::{Application, Applies, Entity, Message};
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    struct Sum(i64);

    #[derive(Serialize, Deserialize)]
    struct Added(i64);

    impl Message for Added {
        const TOPIC: &'static str = "added";
        type Reply = ();
    }

    impl Applies<Added> for Sum {
        fn apply(&mut self, event: &Added) {
            assert_ne!(event.0, 13, "no luck");
            self.0 += event.0;
        }
    }

    impl Entity for Sum {
        const NAME: &'static str = "sum";
        type Key = u8;

        fn applications() -> Vec<Application> {
            vec![Application::of::<Self, Added>()]
        }
    }

    fn event(version: i64, topic: &str, payload: Value) -> StoredEntityEvent {
        let event = Some((topic.to_owned(), payload));
        let (at, message, run) = (OffsetDateTime::UNIX_EPOCH, Uuid::nil(), Uuid::nil());
        StoredEntityEvent { version, at, message, run, event }
    }

    fn folded(events: Vec<StoredEntityEvent>) -> Result<Value, Unfolded> {
        let mut fold = EntityFold::new(EntityType::of::<Sum>())?;
        fold.apply(events)?;
        fold.written(1_000)
    }

    #[test]
    fn state_is_the_result_of_its_events() {
        assert_eq!(folded(vec![]), Ok(json!(0)));
        assert_eq!(folded(vec![event(1, "added", json!(3)), event(2, "added", json!(4))]), Ok(json!(7)));
    }

    #[test]
    fn event_that_cannot_be_applied_is_named_with_its_version_and_topic() {
        let missing = StoredEntityEvent { event: None, ..event(2, "", json!(0)) };
        for (second, version, text) in [
            (event(2, "sold", json!(1)), 2, "no application of events on topic `sold`"),
            (event(2, "added", json!("one")), 2, "on topic `added` does not fit its type"),
            (event(2, "added", json!(13)), 2, "panic in the application of the event on topic `added`"),
            (event(3, "added", json!(1)), 3, "the event of version 2 is missing"),
            (missing, 2, "the message 00000000-0000-0000-0000-000000000000 of the event is missing"),
        ] {
            let unfolded = folded(vec![event(1, "added", json!(3)), second]).unwrap_err();
            assert_eq!(unfolded.version, version, "{}", unfolded.why);
            assert!(unfolded.why.contains(text), "{}", unfolded.why);
        }
    }
}
