//! Entities: states that are the results of their events, each under a key.

use std::any::Any;

use serde_json::Value;
use uuid::Uuid;

use crate::{Json, Message, Stored};

/// An entity: a state for each key, which only its events change. Commands decide about it.
///
/// `#[entity(name = "..", key = Type)]` on an `impl` block implements it: each function of the block with `&mut self` and
/// an event is the application of that event. The state of a key without events is the default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an entity",
    label = "not an entity",
    note = "write `#[entity(name = \"..\", key = Type)]` on the `impl {Self}` with its applications of events"
)]
pub trait Entity: Default + Stored + Send + Sync + 'static {
    /// The name under which its states and events are stored: 1 to 180 characters.
    const NAME: &'static str;

    /// The type of its keys.
    type Key: EntityKey + Send + Sync + 'static;

    /// Whether its states are in a table of the user, and not in the table `entity`.
    #[doc(hidden)]
    const IN_TABLE: bool = false;

    /// The functions that read and write its states if these are in a table of the user.
    #[doc(hidden)]
    fn table() -> Option<&'static (dyn Any + Send + Sync)> {
        None
    }

    /// The application of each of its events.
    #[doc(hidden)]
    fn applications() -> Vec<Application>;
}

/// The application of an event to an entity.
///
/// `#[entity]` implements it for each function with `&mut self` and an event.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no application of the event `{E}`",
    label = "`{Self}` does not change with this event",
    note = "write `fn applied(&mut self, event: &{E}) {{ .. }}` in the `#[entity]` block of `{Self}`"
)]
pub trait Applies<E> {
    /// Changes the state as the event says. It must not depend on anything but the state and the event, since the events
    /// of an entity may be applied again.
    fn apply(&mut self, event: &E);
}

/// A key of an entity, as a text of 1 to 255 bytes without NUL.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::EntityKey;
///
/// struct Shelf { aisle: u8, number: u8 }
///
/// impl EntityKey for Shelf {
///     fn to_key(&self) -> String {
///         format!("{}/{}", self.aisle, self.number)
///     }
/// }
///
/// assert_eq!(Shelf { aisle: 3, number: 7 }.to_key(), "3/7");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of an entity",
    label = "not a key",
    note = "keys are `Uuid`, `String`, integers, and types with `impl EntityKey`"
)]
pub trait EntityKey {
    /// The text. Two keys are the same if their texts are.
    fn to_key(&self) -> String;
}

macro_rules! keys {
    ($($type:ty),*) => {
        $(impl EntityKey for $type {
            fn to_key(&self) -> String {
                self.to_string()
            }
        })*
    };
}

keys!(Uuid, String, &str, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// The application of one event of an entity, with the types erased.
#[derive(Clone, Copy)]
pub struct Application {
    topic: &'static str,
    event: fn() -> &'static str,
    redacted: &'static [&'static str],
    apply: fn(&mut dyn Any, &Value) -> serde_json::Result<()>,
}

impl Application {
    /// The application of `E` to `T`.
    pub fn of<T: Applies<E> + 'static, E: Message>() -> Self {
        let apply: fn(&mut dyn Any, &Value) -> serde_json::Result<()> = |state, payload| {
            let event = E::read_stored(payload)?;
            let state: &mut T = state.downcast_mut().expect("the state is of this entity");
            state.apply(&event);
            Ok(())
        };
        Self { topic: E::TOPIC, event: std::any::type_name::<E>, redacted: E::REDACTED, apply }
    }

    /// The topic of the event.
    pub fn topic(&self) -> &'static str {
        self.topic
    }

    /// [`Message::REDACTED`] of the event.
    pub fn redacted(&self) -> &'static [&'static str] {
        self.redacted
    }

    /// The Rust type of the event.
    pub fn event(&self) -> &'static str {
        (self.event)()
    }
}

/// The functions of an entity, with its type erased.
#[derive(Clone, Copy)]
pub struct EntityType {
    name: &'static str,
    initial: fn() -> Box<dyn Any + Send + Sync>,
    read: fn(&Value) -> serde_json::Result<Box<dyn Any + Send + Sync>>,
    write: fn(&dyn Any) -> serde_json::Result<Value>,
    applications: fn() -> Vec<Application>,
}

impl EntityType {
    /// The functions of `T`.
    pub const fn of<T: Entity>() -> Self {
        Self {
            name: T::NAME,
            initial: || Box::new(T::default()),
            read: |value| Ok(Box::new(T::read_stored(value)?)),
            write: |state| {
                let state: &T = state.downcast_ref().expect("the state is of this entity");
                Json::to_value(state)
            },
            applications: T::applications,
        }
    }

    /// [`Entity::NAME`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The stored state; the default without one.
    ///
    /// # Errors
    ///
    /// If the stored state does not fit the type.
    pub fn read(&self, stored: Option<&Value>) -> serde_json::Result<Box<dyn Any + Send + Sync>> {
        stored.map_or_else(|| Ok((self.initial)()), self.read)
    }

    /// The state as JSON.
    ///
    /// # Errors
    ///
    /// If the state cannot be written as JSON.
    pub fn write(&self, state: &dyn Any) -> serde_json::Result<Value> {
        (self.write)(state)
    }

    /// Its events.
    pub fn applications(&self) -> Vec<Application> {
        (self.applications)()
    }

    /// Applies an event. Returns false if the entity has no application of the topic.
    ///
    /// # Errors
    ///
    /// If the payload does not fit the type of the event.
    pub fn apply(&self, state: &mut dyn Any, topic: &str, payload: &Value) -> serde_json::Result<bool> {
        let Some(application) = self.applications().into_iter().find(|it| it.topic == topic) else {
            return Ok(false);
        };
        (application.apply)(state, payload).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    struct Stock {
        units: i64,
    }

    #[derive(Serialize, Deserialize)]
    struct Delivered {
        units: i64,
    }

    impl Message for Delivered {
        const TOPIC: &'static str = "delivered";
        type Reply = ();
    }

    impl Applies<Delivered> for Stock {
        fn apply(&mut self, event: &Delivered) {
            self.units += event.units;
        }
    }

    impl Entity for Stock {
        const NAME: &'static str = "stock";
        type Key = String;

        fn applications() -> Vec<Application> {
            vec![Application::of::<Self, Delivered>()]
        }
    }

    #[test]
    fn events_are_applied_by_their_topic() {
        let stock = EntityType::of::<Stock>();
        let mut state = stock.read(None).unwrap();
        assert!(stock.apply(&mut *state, "delivered", &json!({ "units": 3 })).unwrap());
        assert!(!stock.apply(&mut *state, "sold", &json!({ "units": 3 })).unwrap());
        assert!(stock.apply(&mut *state, "delivered", &json!({ "boxes": 3 })).is_err());
        assert_eq!(stock.write(&*state).unwrap(), json!({ "units": 3 }));
        assert!(stock.read(Some(&json!("three"))).is_err());
    }
}
