//! The failure of a joined hierarchy whose set of messages was not complete in time.

use serde::{Deserialize, Serialize};

use crate::failure_code::CodedError;
use crate::{Failure, FailureCode};

/// The failure of a saga with `join(.., within = "..")` whose set of messages was not complete in time. None of its steps
/// has run.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Failure, JoinIncomplete};
///
/// fn is_unpaid(why: &Failure) -> bool {
///     why.find::<JoinIncomplete>().is_some_and(|join| join.missing == ["payments.captured"])
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("the messages that saga `{saga}` joins for key `{key}` were not complete in time; missing: {}", missing.join(", "))]
#[non_exhaustive]
pub struct JoinIncomplete {
    /// The saga.
    pub saga: String,
    /// The key of the messages.
    pub key: String,
    /// The topics of the missing messages.
    pub missing: Vec<String>,
}

impl FailureCode for JoinIncomplete {
    const CODE: &'static str = "scoop.join-incomplete";
}

inventory::submit! { CodedError::new::<JoinIncomplete>() }

impl JoinIncomplete {
    /// The failure of the set of this key.
    pub fn new(saga: impl Into<String>, key: impl Into<String>, missing: Vec<String>) -> Self {
        Self { saga: saga.into(), key: key.into(), missing }
    }

    /// The failure, of this source.
    pub fn to_failure(&self, source: &str) -> Failure {
        let data = CodedError::find(self).and_then(|coded| coded.data(self, source));
        Failure::new(Self::CODE, self.to_string(), source).caused_by(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_topics_are_found_in_the_failure() {
        let join = JoinIncomplete::new("shipping", "7", vec!["stock.picked".into()]);
        let failure = join.to_failure("shipping[w]");
        assert_eq!(failure.find::<JoinIncomplete>(), Some(join));
        assert!(failure.report().to_string().contains("missing: stock.picked"));
    }
}
