//! The refusal of a launch without a handler.

use std::panic::Location;

/// A refused launch: its message requires a handler, and its topic has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no handler is subscribed to topic `{topic}`")]
pub(crate) struct Unhandled {
    pub(crate) topic: String,
    /// The Rust type of the message.
    pub(crate) message: String,
    /// The location of the launch, if that was in a step.
    pub(crate) at: Option<&'static Location<'static>>,
}

impl From<Unhandled> for sqlx::Error {
    fn from(unhandled: Unhandled) -> Self {
        Self::Configuration(unhandled.into())
    }
}

impl Unhandled {
    /// The refusal behind an error of the store, if it is one.
    pub(crate) fn find_in(error: &sqlx::Error) -> Option<&Self> {
        match error {
            sqlx::Error::Configuration(source) => source.downcast_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_found_in_the_error_of_the_store() {
        let unhandled = Unhandled { topic: "a".into(), message: "A".into(), at: None };
        let error = sqlx::Error::from(unhandled.clone());
        assert_eq!(Unhandled::find_in(&error), Some(&unhandled));
        assert_eq!(Unhandled::find_in(&sqlx::Error::RowNotFound), None);
    }
}
