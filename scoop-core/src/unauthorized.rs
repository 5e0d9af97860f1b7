//! The failure of a command that its caller may not send.

use serde::{Deserialize, Serialize};

use crate::failure_code::CodedError;
use crate::{Caller, Failure, FailureCode};

/// The failure of a command whose `authorize` refused the caller. The entity has not changed, and `fetch` has not run.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Failure, Unauthorized};
///
/// fn is_forbidden(why: &Failure) -> bool {
///     why.find::<Unauthorized>().is_some_and(|refused| refused.command == "reserve-stock")
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{} may not send the command `{command}`: {why}", named(.caller.as_deref()))]
#[non_exhaustive]
pub struct Unauthorized {
    /// The saga of the command.
    pub command: String,
    /// The subject of the caller; `None` if it is anonymous.
    pub caller: Option<String>,
    /// The text of the error that `authorize` returned.
    pub why: String,
}

fn named(subject: Option<&str>) -> String {
    subject.map_or_else(|| "an anonymous caller".into(), |subject| format!("the caller `{subject}`"))
}

impl FailureCode for Unauthorized {
    const CODE: &'static str = "scoop.unauthorized";
}

inventory::submit! { CodedError::new::<Unauthorized>() }

impl Unauthorized {
    /// The failure of this command, which `caller` may not send for this reason.
    pub fn to_failure(command: &str, caller: &Caller, why: Failure, source: &str) -> Failure {
        let caller = caller.subject().map(str::to_owned);
        let refused = Self { command: command.to_owned(), caller, why: why.message.clone() };
        let data = CodedError::find(&refused).and_then(|coded| coded.data(&refused, source));
        let text = refused.to_string();
        // A summary has the text of the innermost cause.
        let why = Failure { message: text.clone(), ..why };
        Failure::new(Self::CODE, text, source).caused_by(data.into_iter().chain([why]))
    }

    /// The refusal that this failure of a command is. A failure with a refusal of another command among its causes is
    /// none.
    pub fn of(failure: &Failure) -> Option<Self> {
        if failure.kind == Self::CODE { failure.find() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_told_apart_from_a_failure_with_one_among_its_causes() {
        let why = Failure::new("NotAClerk", "only clerks may", "stock[w]");
        let failure = Unauthorized::to_failure("reserve-stock", &Caller::new("bob"), why, "stock[w]");
        let text = "the caller `bob` may not send the command `reserve-stock`: only clerks may";
        assert_eq!(failure.message, text);
        assert_eq!(Unauthorized::of(&failure).unwrap().caller.as_deref(), Some("bob"));
        let above = Failure::child_rolled_back(Some("reserve"), "orders[w]", vec![failure]);
        assert_eq!(Unauthorized::of(&above), None);
        assert!(above.find::<Unauthorized>().is_some());
    }
}
