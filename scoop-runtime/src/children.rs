//! What became of the messages that a run launched.

use scoop_core::{Failure, Stored};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::store::failure;

/// One handler of one message that the run launched.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Child {
    /// The saga that handled it.
    pub handler: String,
    /// Where it was published.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// What became of it.
    pub outcome: ChildOutcome,
    pub(crate) reply: Option<Value>,
}

/// What became of a message with one of its handlers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChildOutcome {
    /// It succeeded.
    Committed,
    /// It failed, and was undone.
    RolledBack(Failure),
    /// It failed, and could not be undone.
    RollbackFailed {
        /// Why it had turned back.
        cause: Failure,
        /// Why it could not be undone.
        failure: Failure,
    },
    /// It had not begun when the run gave up waiting for it, and never did.
    NeverStarted,
    /// It is not at its end yet.
    Unfinished,
}

/// What a handler answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply<R> {
    /// The saga that answered.
    pub handler: String,
    /// To which message.
    pub message_id: Uuid,
    /// What.
    pub value: R,
}

impl Child {
    /// From a row of `run_children.sql`.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let ended: Option<String> = row.try_get("ended")?;
        let lineage: Option<Vec<Uuid>> = row.try_get("lineage")?;
        let outcome = match ended.as_deref() {
            Some("COMMITTED") => ChildOutcome::Committed,
            Some("ROLLED_BACK") => ChildOutcome::RolledBack(failure(row, "cause")?),
            Some("ROLLBACK_FAILED") => {
                let (cause, failure) = (failure(row, "cause")?, failure(row, "exception")?);
                ChildOutcome::RollbackFailed { cause, failure }
            }
            _ if lineage.is_none() => ChildOutcome::NeverStarted,
            _ => ChildOutcome::Unfinished,
        };
        Ok(Self {
            handler: row.try_get("handler")?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            outcome,
            reply: row.try_get("reply")?,
        })
    }

    /// What it answered, if it did and the answer is an `R`.
    pub(crate) fn into_reply<R: Stored>(self) -> Option<Result<Reply<R>, String>> {
        let Self { handler, message_id, reply, .. } = self;
        match R::read_stored(reply?) {
            Ok(value) => Some(Ok(Reply { handler, message_id, value })),
            Err(error) => {
                let expected = std::any::type_name::<R>();
                Some(Err(format!("the reply of saga `{handler}` is no `{expected}`: {error}")))
            }
        }
    }
}

/// The name under which replies of this type are kept: that of the type, without its module.
pub(crate) fn reply_name<R>() -> &'static str {
    let name = std::any::type_name::<R>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_named_after_their_type() {
        assert_eq!(reply_name::<Child>(), "Child");
        assert_eq!(reply_name::<Vec<Child>>(), "Vec");
        assert_eq!(reply_name::<u32>(), "u32");
        assert_eq!(reply_name::<()>(), "()");
    }
}
