//! The protocol of structured cooperation, as pure functions over values.

mod error;
mod failure;
mod message;
mod next;
mod saga;

pub use error::{Error, Result};
pub use failure::{Failure, Frame};
pub use message::{Message, TOPIC_BYTES_MAX};
pub use next::Next;
pub use saga::{Definition, NAME_CHARS_MAX, NameError, STEP_NAME_CHARS_MAX, StepDefinition};
