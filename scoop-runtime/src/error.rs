//! Errors of the functions of the runtime.

mod setup;
pub(crate) mod sqlstate;
mod words;

use std::time::Duration;

use scoop_core::{Escaped, Failure};
use uuid::Uuid;

use crate::model::format::utc;
use crate::model::running_step::RunningStep;
use crate::{IdKind, IdObject};
pub use setup::SetupError;
use setup::{did_you_mean, list};
pub(crate) use sqlstate::{
    CHAIN_MAX, is_cancelled, is_contended, is_crowded, is_denied, is_of_contents, is_of_infrastructure,
    is_of_open_copy, is_of_stale_statement, is_out_of_step, is_rolled_back, is_stale, is_transient,
    is_transient_in_step, is_transient_within_step, is_without_tables, leaves_out_of_step, loses_answer,
};
pub use sqlstate::{is_of_setup, is_refused};
use words::{
    advice, after, attempts_without_success, because, could_not, distinct, effect, listed, messages_in_words,
    without_result,
};
pub use words::{unarchived, written};

/// An error of the runtime.
///
/// A step returns [`scoop_core::Error`], into which this converts by `?`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The program cannot start: all mistakes in it at once.
    #[error("this program cannot start:{}", list(.0))]
    Setup(Vec<SetupError>),

    /// The message cannot be written as JSON. The caller has to change its type.
    #[error("a message for topic `{topic}` cannot be written as JSON")]
    Payload {
        /// The topic of the message.
        topic: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },

    /// The topic of the message cannot be stored. The caller has to choose another.
    #[error("`{message}` cannot be published on topic {topic:?}: 1 to {max} bytes without NUL are possible", max = scoop_core::TOPIC_BYTES_MAX)]
    Topic {
        /// The topic.
        topic: String,
        /// The Rust type of the message, or `Scoop::launch_untyped`.
        message: &'static str,
    },

    /// The JSON of a message, or of the value that a step returned, is too large to be stored.
    #[error(
        "{what} has {bytes} bytes as JSON, more than the {limit} allowed; store the bulk elsewhere and \
         pass a reference, or raise `payload_bytes_max`"
    )]
    TooLarge {
        /// The value: `a message for topic ...`.
        what: String,
        /// Its size in bytes.
        bytes: usize,
        /// The maximum size in bytes.
        limit: usize,
    },

    /// An element of the context cannot be read or stored.
    #[error(transparent)]
    Context(#[from] scoop_core::ContextError),

    /// A message has a value by which its runs cannot be found. The caller has to change it.
    #[error("a message for topic `{topic}` cannot be found by its field `{field}`: {why}")]
    FindBy {
        /// The topic of the message.
        topic: String,
        /// The name of the field, of those that `#[message(find_by(..))]` lists.
        field: String,
        /// The reason.
        why: String,
    },

    /// The JSON of the context is too large to be stored with every event.
    #[error(
        "the context has {bytes} bytes as JSON, more than the {limit} allowed, most of them under the key \
         `{largest}`; store the bulk elsewhere and keep a reference, or raise `context_bytes_max`"
    )]
    ContextTooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The maximum size in bytes.
        limit: usize,
        /// The key of its largest element.
        largest: String,
    },

    /// The runs of the message would exceed [`Limits::depth_max`](crate::Limits::depth_max).
    #[error(
        "step `{step}` of saga `{saga}` launches a message for topic `{topic}` whose runs would have depth {depth} in the \
         hierarchy, {limit} is the limit; if the saga launches itself, have it end or repeat a step instead, launch with \
         `detach` what it need not wait for, or raise `depth_max`"
    )]
    DepthExceeded {
        /// The saga.
        saga: String,
        /// The step that launches the message.
        step: String,
        /// The topic of the message.
        topic: String,
        /// The depth that the runs would have; that of a run without a parent is 1.
        depth: usize,
        /// The greatest depth allowed.
        limit: usize,
    },

    /// A step that declares its launches launches a message that it does not declare.
    #[error(
        "step `{step}` of saga `{saga}` launches a message on topic `{topic}`, which it does not declare; add {message} to \
         `launches(..)` in the `#[step(..)]` of that step, or remove that setting"
    )]
    UndeclaredLaunch {
        /// The saga.
        saga: String,
        /// The step, also if one of its other functions launches the message.
        step: String,
        /// The topic of the message.
        topic: String,
        /// What to declare.
        message: String,
    },

    /// A time outside the range that can be stored, the years 1 to 9999.
    #[error("{when} is out of range (years 1 to 9999)")]
    Time {
        /// The time.
        when: String,
    },

    /// A step waits for the end of a hierarchy or for a decision, as a client does. It would hold its slot meanwhile: once such
    /// steps hold all slots, no run continues.
    #[error(
        "step `{}` of saga `{}` waits for the end of what a client launched, and would hold its slot meanwhile, so that steps \
         which wait for others may stop the whole program; launch the message with the scope (`scope.launch(..)`): the next step \
         begins when all its runs have ended, and reads their replies",
        Escaped(step),
        Escaped(saga)
    )]
    WaitInStep {
        /// The saga.
        saga: String,
        /// The step.
        step: String,
    },

    /// A step shuts its own program down, which would wait for the end of the step.
    #[error(
        "step `{}` of saga `{}` shuts the program down, which would wait for the end of this step; notify the part of the \
         program that started it, and let that call `Scoop::shutdown`",
        Escaped(step),
        Escaped(saga)
    )]
    ShutdownInStep {
        /// The saga.
        saga: String,
        /// The step.
        step: String,
    },

    /// The tokio runtime that the engine was started on was dropped, and the engine with it. Its runs continue in
    /// other processes, or in the next one that starts.
    #[error(
        "the engine is gone without a shutdown: the tokio runtime on which it was started was dropped; keep that runtime \
         until `Scoop::shutdown` has returned"
    )]
    EngineGone,

    /// The program was [shut down](crate::Scoop::shutdown), and its private PostgreSQL was stopped with it. Programs and
    /// clients on other databases have no such error: their operations go on after a shutdown.
    #[error(
        "this program was shut down while {doing}, and its private PostgreSQL was stopped with it; {}; call \
         `Scoop::shutdown` after the last operation, or start the program again",
        effect(*may_have_happened)
    )]
    ShutDown {
        /// The operation.
        doing: &'static str,
        /// The answer to an earlier attempt was lost, so the operation may have taken effect.
        may_have_happened: bool,
    },

    /// The engine has stopped, and has aborted these steps.
    #[error(
        "still running after {limit:?} were {}; each is left to other workers, where it begins again, or \
         fails as `Interrupted` if it runs at most once",
        listed(steps)
    )]
    StepsStopped {
        /// The time that [`Scoop::shutdown_within`](crate::Scoop::shutdown_within) allowed.
        limit: Duration,
        /// The steps.
        steps: Vec<RunningStep>,
    },

    /// No hierarchy or run has this id: it was never launched, its transaction was not committed, it was
    /// pruned (`operate().retention().prune`), or the run was cancelled before it began. Such a run is deleted and has no events, so
    /// nothing has its id any more. Its message is still there.
    #[error(
        "there is no hierarchy and no run {id}; was the transaction that launched it committed, was it pruned, or was it a run \
         that was cancelled before it began?"
    )]
    NoSuchRun {
        /// The id.
        id: Uuid,
    },

    /// The id names an object of another kind than the request takes.
    #[error("{id} is {named}; {}", wanted.hint(named))]
    WrongId {
        /// The id.
        id: Uuid,
        /// The object that the id names.
        named: IdObject,
        /// The kind of id that the request takes.
        wanted: IdKind,
    },

    /// A signal cannot be sent.
    #[error("the signal `{}` cannot be sent: {why}", Escaped(signal))]
    Signal {
        /// The name of the signal.
        signal: String,
        /// The reason.
        why: String,
    },

    /// No saga of any program that has ever started awaits signals of this name, and the signal
    /// [requires](crate::SendSignal::required) one.
    #[error(
        "no saga has ever awaited a signal `{}`{}; correct the name, or first start a program with a saga that awaits it",
        Escaped(signal),
        did_you_mean(near)
    )]
    SignalNotAwaited {
        /// The name of the signal.
        signal: String,
        /// The names of awaited signals that are similar, the nearest first.
        near: Vec<String>,
    },

    /// An entity cannot be read: the key or its version is not possible, or the stored state does not fit the type.
    #[error("the entity `{entity}` with the key `{}` cannot be read: {why}", Escaped(key))]
    Entity {
        /// The name of the entity.
        entity: &'static str,
        /// The key.
        key: String,
        /// The reason.
        why: String,
    },

    /// A text contains a NUL character, which PostgreSQL does not store.
    #[error("{what} contains a NUL character (\\u0000), which PostgreSQL cannot store")]
    NulCharacter {
        /// The value: `a message for topic ...`.
        what: String,
    },

    /// A value is nested too deeply to be read back.
    #[error("{what} is nested {depth} levels deep; {limit} can be read back")]
    NestingTooDeep {
        /// The value: `a message for topic ...`.
        what: String,
        /// Its depth.
        depth: usize,
        /// The maximum depth.
        limit: usize,
    },

    /// No message has this id: it was never launched, its transaction was not committed, or its hierarchy was
    /// pruned (`operate().retention().prune`).
    #[error(
        "there is no message {id}; was the transaction that launched it committed, or was its hierarchy pruned?"
    )]
    NoSuchMessage {
        /// The message.
        id: Uuid,
    },

    /// No message with this unique key was launched on this topic.
    #[error(
        "no message was launched on topic `{}` with the key `{}`; was the transaction that launched it committed, or was \
         its hierarchy pruned?",
        Escaped(topic),
        Escaped(key)
    )]
    NoSuchKey {
        /// The topic.
        topic: String,
        /// The [key](crate::Launch::unique).
        key: String,
    },

    /// The hierarchy that was launched with this unique key was deleted, and the key is
    /// [kept](crate::Retention::unique_keys): a launch with it starts nothing.
    #[error(
        "the hierarchy that was launched on topic `{}` with the key `{}` was deleted, and its key is kept until {}: a launch \
         with this key starts nothing before",
        Escaped(topic),
        Escaped(key),
        utc(*until)
    )]
    KeptKey {
        /// The topic.
        topic: String,
        /// The [key](crate::Launch::unique).
        key: String,
        /// The time until which the key is kept.
        until: std::time::SystemTime,
    },

    /// A reply does not have the type that the message declares: handler and reader are of different versions.
    #[error(
        "the reply of saga `{}` to message {message} is no `{expected}`: it is stored as {}, and the \
         type reads {shape}",
        Escaped(saga),
        Escaped(stored)
    )]
    ReplyMismatch {
        /// The saga that replied.
        saga: String,
        /// The message.
        message: Uuid,
        /// The Rust type that was expected.
        expected: &'static str,
        /// The kind of value that is stored, with the names of its fields.
        stored: String,
        /// The kind of value that the type reads, with the names of its fields or variants.
        shape: String,
        /// The error of serde.
        source: serde_json::Error,
    },

    /// The replies of a hierarchy were requested for another message type than the one that started it.
    #[error(
        "message {id} is on topic `{}`, but its replies were requested for a message on topic \
         `{expected}`; name the type that was launched",
        Escaped(topic)
    )]
    OtherMessage {
        /// The message that started the hierarchy.
        id: Uuid,
        /// The topic of the message.
        topic: String,
        /// The topic of the requested type.
        expected: &'static str,
    },

    /// A hierarchy has no single result: see [`Handle::result`](crate::Handle::result).
    ///
    /// Display it for one line, `{error:#}` for that and the whole report of what failed.
    #[error(fmt = without_result)]
    NoResult {
        /// The message that started the hierarchy.
        id: Uuid,
        /// The topic of the message.
        topic: &'static str,
        /// The reason.
        why: NoResult,
        /// The step that failed first, if the hierarchy failed and the events of that step could be read.
        failed: Option<FailedStep>,
    },

    /// The message requires a handler, and none is subscribed to the topic. Nothing is stored. See
    /// `#[message(handlers = "required")]`.
    #[error(
        "no handler is subscribed to topic `{}`, and `{message}` requires one; {subscribed}; \
         correct the topic, or first start a program with a saga that subscribes to it",
        Escaped(topic)
    )]
    NoHandler {
        /// The topic.
        topic: String,
        /// The requirer: the Rust type of the message, `Scoop::launch_untyped` or `operate().handlers().redeliver`.
        message: String,
        /// The topics that have handlers.
        subscribed: crate::Subscribed,
    },

    /// The queue of a saga with `#[saga(queue = ..)]` is full. Nothing of the launch is stored. See
    /// [the guide](https://docs.rs/scoop-saga/latest/scoop/guide/limits/index.html).
    #[error(
        "the queue of saga `{}` is full{}: at most {limit} of its runs wait for a worker, and {} on topic `{}` would be beyond \
         that; nothing was launched; {}",
        Escaped(saga),
        after(*waited),
        messages_in_words(*messages),
        Escaped(topic),
        advice(*messages, *limit)
    )]
    QueueFull {
        /// The saga.
        saga: String,
        /// The topic of a message that the saga would get.
        topic: String,
        /// How many runs of the saga may wait for a worker.
        limit: u32,
        /// The number of messages of the launch that the saga would get.
        messages: usize,
        /// For how long the launch has [waited for room](crate::Launch::wait_for_room), if it was to wait.
        waited: Option<Duration>,
    },

    /// [`Scoop::trigger`](crate::Scoop::trigger) or `operate().schedules().trigger` was called for a saga
    /// without a registered schedule.
    #[error("saga `{}` has no schedule; did a program that has it ever start?", Escaped(saga))]
    NoSchedule {
        /// The saga.
        saga: String,
    },

    /// The database failed or refused a statement.
    #[error("the database failed while {doing}")]
    Database {
        /// The operation.
        doing: &'static str,
        /// The error of sqlx.
        source: sqlx::Error,
    },

    /// The role of the connections lacks a right on the tables. The guide's page about security lists the rights.
    #[error(
        "{}, since the role of the connection lacks a right: {}; the guide lists the GRANTs that each role needs",
        could_not(doing),
        Escaped(refusal)
    )]
    Denied {
        /// The operation.
        doing: &'static str,
        /// The error of the server.
        refusal: String,
        /// The error of sqlx.
        source: sqlx::Error,
    },

    /// The database was away for longer than the program retries, see [`Builder::retry_for`](crate::Builder::retry_for).
    #[error(
        "the database failed while {doing}: {attempts} {} within {waited:.1?}, where `Builder::retry_for` allows \
         {retry_for:?} for retries; {}", attempts_without_success(*attempts), effect(*may_have_happened)
    )]
    Unavailable {
        /// The operation.
        doing: &'static str,
        /// The number of attempts.
        attempts: u32,
        /// The time spent on the attempts.
        waited: Duration,
        /// The setting.
        retry_for: Duration,
        /// The answer of the server was lost, so the operation may have taken effect.
        may_have_happened: bool,
        /// The error of sqlx, from the last attempt that had a connection.
        source: sqlx::Error,
    },

    /// Other reads of the program, such as lists and trees, had all its connections for reads, and none of them ended for as
    /// long as the program retries, see [`Builder::retry_for`](crate::Builder::retry_for). A [client](crate::Scoop::client) has two such connections, a
    /// program that runs sagas has one of three, since the others are for the sagas. The call only reads, and can be repeated.
    #[error(
        "{}, since other reads of this program took too long: it waited {waited:.1?} for one of them to end. Ask for less by \
         filters and limits, or raise `Builder::retry_for`. If this program runs sagas, it has one connection for reads, and a \
         `Scoop::client` in it has two more",
        could_not(doing)
    )]
    ReadsBusy {
        /// The operation.
        doing: &'static str,
        /// The time for which it waited.
        waited: Duration,
    },

    /// No connection could be opened in time when the program started.
    #[error(
        "no connection to the database could be opened{}: the pool allows {max} connections, and scoop needs {required}: \
         {own} that it opens itself, beside the pool, and the rest for steps. Check that the server can be reached. Check \
         that it lets all processes together have as many: `max_connections` of the server, `CONNECTION LIMIT` of the role \
         and the database. Check that the program does not hold all connections of its pool; if it does, raise the \
         `max_connections` of the pool",
        because(refusal)
    )]
    NoConnection {
        /// The maximum number of connections of the pool.
        max: u32,
        /// The number of connections that are needed.
        required: u32,
        /// The number of these that the engine opens beside the pool.
        own: u32,
        /// The error of the server, or of a connection that was opened to find the reason.
        refusal: Option<String>,
        /// The error of sqlx.
        source: sqlx::Error,
    },

    /// The tables could not be made or brought up to date.
    #[error("the tables in schema `{schema}` cannot be brought up to date")]
    Migration {
        /// The schema.
        schema: String,
        /// The error of sqlx.
        source: sqlx::migrate::MigrateError,
    },

    /// The private PostgreSQL could not be started.
    #[cfg(feature = "embedded")]
    #[error("could not start the embedded PostgreSQL")]
    Embedded(#[from] crate::embedded::EmbeddedError),
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

impl RuntimeError {
    /// The error of sqlx that caused this one, if any.
    pub(crate) fn of_sqlx(&self) -> Option<&sqlx::Error> {
        use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
        match self {
            Self::Database { source, .. }
            | Self::Denied { source, .. }
            | Self::Unavailable { source, .. }
            | Self::NoConnection { source, .. }
            | Self::Migration { source: Execute(source) | ExecuteMigration(source, _), .. } => Some(source),
            _ => None,
        }
    }

    /// Converts an error because of a missing permission into [`SetupError::Denied`] with the message of the server.
    pub(crate) fn denied(self) -> Self {
        let Some(source) = self.of_sqlx().filter(|source| is_denied(source)) else {
            return self;
        };
        let refusal = refusal(source);
        let doing = match &self {
            Self::Database { doing, .. } | Self::Denied { doing, .. } | Self::Unavailable { doing, .. } => {
                (*doing).to_owned()
            }
            Self::Migration { schema, .. } => {
                format!("the tables in schema `{schema}` were brought up to date")
            }
            _ => "it started".to_owned(),
        };
        vec![SetupError::Denied { doing, refusal }].into()
    }

    /// Converts an error of sqlx into [`RuntimeError::Database`]; `doing` names the operation.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }

    /// Whether the operation may have taken effect despite this error, since the answer of the database was lost. If
    /// a launch is then repeated, the message may exist twice, unless the launch has a [key](crate::Launch::unique).
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, RuntimeError, Scoop};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// match scoop.launch(OrderPlaced { order: 7 }).await {
    ///     Err(error) if error.may_have_happened() => println!("it is not known whether order 7 was placed"),
    ///     launched => println!("launched: {}", launched?.id()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { may_have_happened: true, .. }
                | Self::ShutDown { may_have_happened: true, .. }
        )
    }

    /// The failure of the hierarchy, if this is a [`RuntimeError::NoResult`] of one that failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::NoResult {
                why:
                    NoResult::RolledBack(failure) | NoResult::RollbackFailed(failure) | NoResult::Refused(failure),
                ..
            } => Some(failure),
            _ => None,
        }
    }

    /// Whether the operation may succeed when repeated: the connection or the server failed, or there was none for a
    /// read, not the request.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::ReadsBusy { .. }) || self.of_sqlx().is_some_and(is_transient)
    }
}

/// The message of the server.
pub(crate) fn refusal(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use sqlx::migrate::MigrateError;

    use super::*;
    use crate::util::retries::GivenUp;

    #[test]
    fn denied_operation_is_named_as_one_that_was_not_done() {
        let denied = |doing| {
            RuntimeError::Denied { doing, refusal: "no".into(), source: sqlx::Error::RowNotFound }.to_string()
        };
        let right = "since the role of the connection lacks a right: no; ";
        let (one, many) = (denied("a message was launched"), denied("old hierarchies were looked up"));
        assert!(one.starts_with(&format!("a message could not be launched, {right}")), "{one}");
        assert!(many.starts_with(&format!("old hierarchies could not be looked up, {right}")), "{many}");
    }

    #[test]
    fn stopped_steps_are_said_to_begin_again_or_to_fail() {
        let text = RuntimeError::StepsStopped { limit: Duration::from_secs(1), steps: vec![] }.to_string();
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
            RuntimeError::ReplyMismatch {
                saga: forged(),
                message: Uuid::nil(),
                expected: "u8",
                stored: forged(),
                shape: "u8".into(),
                source,
            },
            RuntimeError::OtherMessage { id: Uuid::nil(), topic: forged(), expected: "t" },
            RuntimeError::NoSchedule { saga: forged() },
            RuntimeError::QueueFull {
                saga: forged(),
                topic: "t".into(),
                limit: 1,
                messages: 1,
                waited: None,
            },
            RuntimeError::NoHandler {
                topic: "t".into(),
                message: "M".into(),
                subscribed: subscribed(vec![forged()], vec![]),
            },
            RuntimeError::NoHandler {
                topic: "t".into(),
                message: "M".into(),
                subscribed: subscribed(vec![], vec![forged()]),
            },
            RuntimeError::NoResult {
                id: Uuid::nil(),
                topic: "t",
                why: NoResult::SeveralReplies { handlers: vec![forged()] },
                failed: None,
            },
            RuntimeError::NoResult {
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
            assert!(matches!(error, RuntimeError::ShutDown { .. }), "{error:?}");
            assert_eq!((error.may_have_happened(), error.is_transient()), (in_doubt, false));
            let shown = error.to_string();
            assert!(shown.starts_with("this program was shut down while a message was launched"), "{shown}");
            assert_eq!(shown.contains("nothing was done"), !in_doubt, "{shown}");
        }
    }

    #[test]
    fn read_without_a_connection_in_time_names_the_remedies_and_is_transient() {
        let error = RuntimeError::ReadsBusy { doing: "runs were listed", waited: Duration::from_secs(30) };
        let shown = error.to_string();
        assert!(shown.starts_with("runs could not be listed, since other reads of this program"), "{shown}");
        assert!(shown.contains("30.0s") && shown.contains("`Scoop::client`"), "{shown}");
        assert!(error.is_transient() && !error.may_have_happened());
    }

    #[test]
    fn start_that_lost_its_connection_is_transient() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
        let migration = |source| RuntimeError::Migration { schema: "scoop".into(), source };
        assert!(migration(MigrateError::Execute(lost())).is_transient());
        assert!(migration(MigrateError::ExecuteMigration(lost(), 3)).is_transient());
        let unanswered = || sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".into());
        assert!(migration(MigrateError::Execute(unanswered())).is_transient());
        assert!(!migration(MigrateError::Execute(sqlx::Error::RowNotFound)).is_transient());
        assert!(!migration(MigrateError::Dirty(3)).is_transient());
    }
}
