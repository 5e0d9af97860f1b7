//! Errors of the functions of the runtime.

mod kind;
mod setup;
pub(crate) mod sqlstate;
mod words;

use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use scoop_core::{Escaped, Failure};

use crate::model::name::{IdKind, IdObject};
use crate::model::running_step::RunningStep;
pub use kind::ErrorKind;
pub use setup::SetupError;
pub(crate) use sqlstate::{
    CHAIN_MAX, is_cancelled, is_contended, is_crowded, is_denied, is_of_contents, is_of_infrastructure,
    is_of_open_copy, is_of_stale_statement, is_out_of_step, is_rolled_back, is_stale, is_transient,
    is_transient_in_step, is_transient_within_step, is_without_tables, leaves_out_of_step, loses_answer,
};
pub use sqlstate::{is_of_setup, is_refused};
use words::distinct;
pub use words::{unarchived, written};

/// An error of the runtime. Display it, and its sources, for the reason and the way out; its methods say what a program can do about
/// it.
///
/// A step returns [`scoop_core::Error`], into which this converts by `?`.
///
/// ```no_run
/// # use scoop_runtime::{RuntimeError, Scoop};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct OrderPlaced { order: u32 }
/// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
/// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
/// match scoop.launch(OrderPlaced { order: 7 }).await {
///     Ok(launched) => println!("launched: {}", launched.id()),
///     Err(error) if error.is_queue_full() => println!("try again later: {error}"),
///     Err(error) if error.may_have_happened() => println!("it is not known whether order 7 was placed"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RuntimeError(Box<ErrorKind>);

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for RuntimeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl<K: Into<ErrorKind>> From<K> for RuntimeError {
    fn from(kind: K) -> Self {
        Self(Box::new(kind.into()))
    }
}

impl RuntimeError {
    #[doc(hidden)]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    pub(crate) fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Converts an error because of a missing right into one of the setup, with the message of the server.
    pub(crate) fn denied(self) -> Self {
        self.0.denied().map_or(self, |denied| vec![denied].into())
    }

    /// Converts an error of sqlx; `doing` names the operation.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| ErrorKind::Database { doing, source }.into()
    }

    /// Whether the operation may have taken effect despite this error, since the answer of the database was lost. If
    /// a launch is then repeated, the message may exist twice, unless the launch has a [key](crate::Launch::unique).
    pub fn may_have_happened(&self) -> bool {
        matches!(
            *self.0,
            ErrorKind::Unavailable { may_have_happened: true, .. }
                | ErrorKind::ShutDown { may_have_happened: true, .. }
        )
    }

    /// Whether the operation may succeed when repeated: the connection or the server failed, or there was none for a
    /// read, not the request.
    pub fn is_transient(&self) -> bool {
        self.0.is_transient()
    }

    /// Whether the database did not answer in time, or the program was shut down.
    pub fn is_unavailable(&self) -> bool {
        use ErrorKind::{EngineGone, ReadsBusy, ShutDown, Unavailable};
        matches!(*self.0, Unavailable { .. } | ReadsBusy { .. } | ShutDown { .. } | EngineGone)
    }

    /// Whether other reads of this program had all its connections for reads, for too long.
    pub fn is_busy(&self) -> bool {
        matches!(*self.0, ErrorKind::ReadsBusy { .. })
    }

    /// Whether the role of the connections lacks a right. The guide has a page about security, which lists the rights.
    pub fn is_denied(&self) -> bool {
        matches!(*self.0, ErrorKind::Denied { .. })
    }

    /// The mistakes for which the program cannot start, all at once; none if this is another error.
    pub fn setup(&self) -> &[SetupError] {
        match &*self.0 {
            ErrorKind::Setup(mistakes) => mistakes,
            _ => &[],
        }
    }

    /// Whether a value that was given is not possible: it cannot be stored or read back, is too large, or out of range.
    pub fn is_invalid(&self) -> bool {
        use ErrorKind::{
            Context, ContextTooLarge, FindBy, NestingTooDeep, NulCharacter, Payload, Signal, Time, TooLarge,
            Topic,
        };
        matches!(
            *self.0,
            Context(_)
                | ContextTooLarge { .. }
                | FindBy { .. }
                | NestingTooDeep { .. }
                | NulCharacter { .. }
                | Payload { .. }
                | Signal { .. }
                | Time { .. }
                | TooLarge { .. }
                | Topic { .. }
        )
    }

    /// Whether the message [requires](crate::Launch::required) a handler, and none is subscribed to its topic. Nothing was launched.
    pub fn is_no_handler(&self) -> bool {
        matches!(*self.0, ErrorKind::NoHandler { .. })
    }

    /// Whether the queue of a saga is full. Nothing was launched; [`wait_for_capacity`](crate::Launch::wait_for_capacity) lets the launch wait.
    pub fn is_queue_full(&self) -> bool {
        matches!(*self.0, ErrorKind::QueueFull { .. })
    }

    /// Whether there is no such run, hierarchy, message, unique key or schedule: it was never there, or it was deleted. So it is with
    /// an id that is [of another kind](Self::wrong_id), and a key that [outlives](Self::key_valid_until) its hierarchy.
    pub fn is_not_found(&self) -> bool {
        use ErrorKind::{NoSchedule, NoSuchKey, NoSuchMessage, NoSuchRun, RetainedKey, WrongId};
        matches!(
            *self.0,
            NoSuchRun { .. }
                | NoSuchMessage { .. }
                | NoSuchKey { .. }
                | RetainedKey { .. }
                | NoSchedule { .. }
                | WrongId { .. }
        )
    }

    /// What the given id names, and the kind of id that the call takes, if these differ.
    pub fn wrong_id(&self) -> Option<(&IdObject, IdKind)> {
        match &*self.0 {
            ErrorKind::WrongId { named, wanted, .. } => Some((named, *wanted)),
            _ => None,
        }
    }

    /// The time until which a unique key is kept whose hierarchy was deleted.
    pub fn key_valid_until(&self) -> Option<SystemTime> {
        match *self.0 {
            ErrorKind::RetainedKey { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Why a hierarchy has no single result, if a result was asked for.
    pub fn no_result(&self) -> Option<&NoResult> {
        match &*self.0 {
            ErrorKind::NoResult { why, .. } => Some(why),
            _ => None,
        }
    }

    /// The failure of the hierarchy, if it has [no result](Self::no_result) because it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self.no_result()? {
            NoResult::RolledBack(failure)
            | NoResult::RollbackFailed(failure)
            | NoResult::Refused(failure) => Some(failure),
            _ => None,
        }
    }

    /// The steps that were stopped since they ran for longer than the limit of a shutdown.
    pub fn stopped_steps(&self) -> &[RunningStep] {
        match &*self.0 {
            ErrorKind::StepsStopped { steps, .. } => steps,
            _ => &[],
        }
    }
}

/// The reason for which a hierarchy has no single result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoResult {
    /// The hierarchy failed, and was rolled back.
    #[error("it was rolled back: {}", _0.summary())]
    RolledBack(Box<Failure>),

    /// The hierarchy failed, and a part of its rollback failed, too. An operator has to repair it.
    #[error("it could not be rolled back completely, and waits for an operator: {}", _0.rollback_summary())]
    RollbackFailed(Box<Failure>),

    /// It is a command that its caller may not send. Nothing has changed.
    #[error("it was refused: {}", _0.summary())]
    Refused(Box<Failure>),

    /// No saga was subscribed when the message was launched.
    #[error(
        "no saga was subscribed when it was launched; start a program that handles it, then launch it again, or have it \
         redelivered by `operate().handlers().redeliver`"
    )]
    NoHandlers,

    /// The handlers of the message committed without a reply.
    #[error(
        "no handler replied; call `scope.reply(message, ..)` in one of them, or use `wait()` if there is nothing \
         to reply"
    )]
    NoReply,

    /// The message has several replies, of one handler or of several.
    #[error(
        "it has {} replies, by {}; read all of them with `replies()`, or let one handler reply once",
        handlers.len(), distinct(handlers)
    )]
    SeveralReplies {
        /// The saga of each reply.
        handlers: Vec<String>,
    },
}

/// A step of a saga that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step `{}` of saga `{}`", Escaped(step), Escaped(saga))]
#[non_exhaustive]
pub struct FailedStep {
    /// The saga.
    pub saga: String,
    /// The step.
    pub step: String,
}

/// The message of the server.
pub(crate) fn refusal(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::migrate::MigrateError;
    use uuid::Uuid;

    use super::*;
    use crate::util::retries::GivenUp;

    #[test]
    fn denied_operation_is_named_as_one_that_was_not_done() {
        let denied = |doing| {
            ErrorKind::Denied { doing, refusal: "no".into(), source: sqlx::Error::RowNotFound }.to_string()
        };
        let right = "since the role of the connection lacks a right: no; ";
        let (one, many) = (denied("a message was launched"), denied("old hierarchies were looked up"));
        assert!(one.starts_with(&format!("a message could not be launched, {right}")), "{one}");
        assert!(many.starts_with(&format!("old hierarchies could not be looked up, {right}")), "{many}");
    }

    #[test]
    fn stopped_steps_are_said_to_begin_again_or_to_fail() {
        let text = ErrorKind::StepsStopped { limit: Duration::from_secs(1), steps: vec![] }.to_string();
        assert!(
            text.ends_with("where it begins again, or fails as `Interrupted` if it runs at most once"),
            "{text}"
        );
    }

    #[test]
    fn name_from_the_database_is_printed_on_one_line() {
        let forged = || "stock\n└─ \u{1b}[2Jforged\u{202e}".to_owned();
        let escaped = r"stock\n└─ \u{1b}[2Jforged\u{202e}";
        let source = serde_json::from_str::<u8>("").unwrap_err();
        let subscribed = |near, others| crate::Subscribed { near, others, count: 1 };
        for error in [
            ErrorKind::ReplyMismatch {
                saga: forged(),
                message: Uuid::nil(),
                expected: "u8",
                stored: forged(),
                shape: "u8".into(),
                source,
            },
            ErrorKind::OtherMessage { id: Uuid::nil(), topic: forged(), expected: "t" },
            ErrorKind::NoSchedule { saga: forged() },
            ErrorKind::QueueFull { saga: forged(), topic: "t".into(), limit: 1, messages: 1, waited: None },
            ErrorKind::NoHandler {
                topic: "t".into(),
                message: "M".into(),
                subscribed: subscribed(vec![forged()], vec![]),
            },
            ErrorKind::NoHandler {
                topic: "t".into(),
                message: "M".into(),
                subscribed: subscribed(vec![], vec![forged()]),
            },
            ErrorKind::NoResult {
                id: Uuid::nil(),
                topic: "t",
                why: NoResult::SeveralReplies { handlers: vec![forged()] },
                failed: None,
            },
            ErrorKind::NoResult {
                id: Uuid::nil(),
                topic: "t",
                why: NoResult::RolledBack(Box::new(Failure::new("T", forged(), forged()))),
                failed: Some(FailedStep { saga: forged(), step: forged() }),
            },
        ] {
            let shown = error.to_string();
            assert!(shown.contains(escaped) && !shown.contains(Escaped::escapes), "{shown}");
        }
    }

    #[test]
    fn operation_after_a_shutdown_names_the_shutdown_and_what_may_have_happened() {
        let given_up = |in_doubt| GivenUp { in_doubt, ..sqlx::Error::PoolClosed.into() };
        for in_doubt in [false, true] {
            let error = GivenUp::error("a message was launched")(given_up(in_doubt));
            assert!(
                error.is_unavailable() && matches!(error.kind(), ErrorKind::ShutDown { .. }),
                "{error:?}"
            );
            assert_eq!((error.may_have_happened(), error.is_transient()), (in_doubt, false));
            let shown = error.to_string();
            assert!(shown.starts_with("this program was shut down while a message was launched"), "{shown}");
            assert_eq!(shown.contains("nothing was done"), !in_doubt, "{shown}");
        }
    }

    #[test]
    fn read_without_a_connection_in_time_names_the_remedies_and_is_transient() {
        let error: RuntimeError =
            ErrorKind::ReadsBusy { doing: "runs were listed", waited: Duration::from_secs(30) }.into();
        let shown = error.to_string();
        assert!(shown.starts_with("runs could not be listed, since other reads of this program"), "{shown}");
        assert!(shown.contains("30.0s") && shown.contains("`Scoop::client`"), "{shown}");
        assert!(error.is_transient() && !error.may_have_happened());
    }

    #[test]
    fn start_that_lost_its_connection_is_transient() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
        let migration = |source| RuntimeError::from(ErrorKind::Migration { schema: "scoop".into(), source });
        assert!(migration(MigrateError::Execute(lost())).is_transient());
        assert!(migration(MigrateError::ExecuteMigration(lost(), 3)).is_transient());
        let unanswered = || sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".into());
        assert!(migration(MigrateError::Execute(unanswered())).is_transient());
        assert!(!migration(MigrateError::Execute(sqlx::Error::RowNotFound)).is_transient());
        assert!(!migration(MigrateError::Dirty(3)).is_transient());
    }
}
