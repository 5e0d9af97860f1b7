//! What an error of the runtime is about.

use std::time::Duration;

use scoop_core::Escaped;
use uuid::Uuid;

use super::setup::{did_you_mean, list};
use super::words::{
    advice, after, attempts_without_success, because, could_not, effect, joined, messages_in_words,
    without_result,
};
use super::{FailedStep, NoResult, SetupError, is_denied, is_transient, refusal};
use crate::model::format::utc;
use crate::model::name::{IdKind, IdObject};
use crate::model::running_step::RunningStep;

/// Each has a text for people. Callers of the runtime ask the methods of [`RuntimeError`](super::RuntimeError).
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "not public, and the texts say it")]
pub enum ErrorKind {
    #[error("this program cannot start:{}", list(.0))]
    Setup(Vec<SetupError>),

    #[error("a message for topic `{topic}` cannot be written as JSON")]
    Payload { topic: &'static str, source: serde_json::Error },

    #[error("`{message}` cannot be published on topic {topic:?}: 1 to {max} bytes without NUL are possible", max = scoop_core::TOPIC_BYTES_MAX)]
    Topic { topic: String, message: &'static str },

    #[error(
        "{what} has {bytes} bytes as JSON, more than the {limit} allowed; store the bulk elsewhere and \
         pass a reference, or raise `payload_bytes_max`"
    )]
    TooLarge { what: String, bytes: usize, limit: usize },

    #[error(transparent)]
    Context(#[from] scoop_core::ContextError),

    #[error("a message for topic `{topic}` cannot be found by its field `{field}`: {why}")]
    FindBy { topic: String, field: String, why: String },

    #[error(
        "the context has {bytes} bytes as JSON, more than the {limit} allowed, most of them under the key \
         `{largest}`; store the bulk elsewhere and keep a reference, or raise `context_bytes_max`"
    )]
    ContextTooLarge { bytes: usize, limit: usize, largest: String },

    #[error(
        "step `{step}` of saga `{saga}` launches a message for topic `{topic}` whose runs would have depth {depth} in the \
         hierarchy, {limit} is the limit; if the saga launches itself, have it end or repeat a step instead, launch with \
         `detach` what it need not wait for, or raise `depth_max`"
    )]
    DepthExceeded { saga: String, step: String, topic: String, depth: usize, limit: usize },

    #[error(
        "step `{step}` of saga `{saga}` launches a message on topic `{topic}`, which it does not declare; add {message} to \
         `launches(..)` in the `#[step(..)]` of that step, or remove that setting"
    )]
    UndeclaredLaunch { saga: String, step: String, topic: String, message: String },

    #[error("{when} is out of range (years 1 to 9999)")]
    Time { when: String },

    #[error(
        "step `{}` of saga `{}` waits for the end of what a client launched, and would hold its slot meanwhile, so that steps \
         which wait for others may stop the whole program; launch the message with the scope (`scope.launch(..)`): the next step \
         begins when all its runs have ended, and reads their replies",
        Escaped(step),
        Escaped(saga)
    )]
    WaitInStep { saga: String, step: String },

    #[error(
        "step `{}` of saga `{}` shuts the program down, which would wait for the end of this step; notify the part of the \
         program that started it, and let that call `Scoop::shutdown`",
        Escaped(step),
        Escaped(saga)
    )]
    ShutdownInStep { saga: String, step: String },

    #[error(
        "the engine is gone without a shutdown: the tokio runtime on which it was started was dropped; keep that runtime \
         until `Scoop::shutdown` has returned"
    )]
    EngineGone,

    #[error(
        "this program was shut down while {doing}, and its private PostgreSQL was stopped with it; {}; call \
         `Scoop::shutdown` after the last operation, or start the program again",
        effect(*may_have_happened)
    )]
    ShutDown { doing: &'static str, may_have_happened: bool },

    #[error(
        "still running after {limit:?} were {}; each is left to other workers, where it begins again, or \
         fails as `Interrupted` if it runs at most once",
        joined(steps)
    )]
    StepsStopped { limit: Duration, steps: Vec<RunningStep> },

    #[error(
        "there is no hierarchy and no run {id}; was the transaction that launched it committed, was it pruned, or was it a run \
         that was cancelled before it began?"
    )]
    NoSuchRun { id: Uuid },

    #[error("{id} is {named}; {}", wanted.hint(named))]
    WrongId { id: Uuid, named: IdObject, wanted: IdKind },

    #[error("the signal `{}` cannot be sent: {why}", Escaped(signal))]
    Signal { signal: String, why: String },

    #[error(
        "no saga has ever awaited a signal `{}`{}; correct the name, or first start a program with a saga that awaits it",
        Escaped(signal),
        did_you_mean(near)
    )]
    SignalNotAwaited { signal: String, near: Vec<String> },

    #[error("the entity `{entity}` with the key `{}` cannot be read: {why}", Escaped(key))]
    Entity { entity: &'static str, key: String, why: String },

    #[error("{what} contains a NUL character (\\u0000), which PostgreSQL cannot store")]
    NulCharacter { what: String },

    #[error("{what} is nested {depth} levels deep; {limit} can be read back")]
    NestingTooDeep { what: String, depth: usize, limit: usize },

    #[error(
        "there is no message {id}; was the transaction that launched it committed, or was its hierarchy pruned?"
    )]
    NoSuchMessage { id: Uuid },

    #[error(
        "no message was launched on topic `{}` with the key `{}`; was the transaction that launched it committed, or was \
         its hierarchy pruned?",
        Escaped(topic),
        Escaped(key)
    )]
    NoSuchKey { topic: String, key: String },

    #[error(
        "the hierarchy that was launched on topic `{}` with the key `{}` was deleted, and its key is kept until {}: a launch \
         with this key starts nothing before",
        Escaped(topic),
        Escaped(key),
        utc(*until)
    )]
    RetainedKey { topic: String, key: String, until: std::time::SystemTime },

    #[error(
        "the reply of saga `{}` to message {message} is no `{expected}`: it is stored as {}, and the \
         type reads {shape}",
        Escaped(saga),
        Escaped(stored)
    )]
    ReplyMismatch {
        saga: String,
        message: Uuid,
        expected: &'static str,
        stored: String,
        shape: String,
        source: serde_json::Error,
    },

    #[error(
        "message {id} is on topic `{}`, but its replies were requested for a message on topic \
         `{expected}`; name the type that was launched",
        Escaped(topic)
    )]
    OtherMessage { id: Uuid, topic: String, expected: &'static str },

    #[error(fmt = without_result)]
    NoResult { id: Uuid, topic: &'static str, why: NoResult, failed: Option<FailedStep> },

    #[error(
        "no handler is subscribed to topic `{}`, and `{message}` requires one; {subscribed}; \
         correct the topic, or first start a program with a saga that subscribes to it",
        Escaped(topic)
    )]
    NoHandler { topic: String, message: String, subscribed: crate::Subscribed },

    #[error(
        "the queue of saga `{}` is full{}: at most {limit} of its runs wait for a worker, and {} on topic `{}` would be beyond \
         that; nothing was launched; {}",
        Escaped(saga),
        after(*waited),
        messages_in_words(*messages),
        Escaped(topic),
        advice(*messages, *limit)
    )]
    QueueFull { saga: String, topic: String, limit: u32, messages: usize, waited: Option<Duration> },

    #[error("saga `{}` has no schedule; did a program that has it ever start?", Escaped(saga))]
    NoSchedule { saga: String },

    #[error("the database failed while {doing}")]
    Database { doing: &'static str, source: sqlx::Error },

    #[error(
        "{}, since the role of the connection lacks a right: {}; the guide lists the GRANTs that each role needs",
        could_not(doing),
        Escaped(refusal)
    )]
    Denied { doing: &'static str, refusal: String, source: sqlx::Error },

    #[error(
        "the database failed while {doing}: {attempts} {} within {waited:.1?}, where `Builder::retry_for` allows \
         {retry_for:?} for retries; {}", attempts_without_success(*attempts), effect(*may_have_happened)
    )]
    Unavailable {
        doing: &'static str,
        attempts: u32,
        waited: Duration,
        retry_for: Duration,
        may_have_happened: bool,
        source: sqlx::Error,
    },

    #[error(
        "{}, since other reads of this program took too long: it waited {waited:.1?} for one of them to end. Ask for less by \
         filters and limits, or raise `Builder::retry_for`. If this program runs sagas, it has one connection for reads, and a \
         `Scoop::client` in it has two more",
        could_not(doing)
    )]
    ReadsBusy { doing: &'static str, waited: Duration },

    #[error(
        "no connection to the database could be opened{}: the pool allows {max} connections, and scoop needs {required}: \
         {own} that it opens itself, beside the pool, and the rest for steps. Check that the server can be reached. Check \
         that it lets all processes together have as many: `max_connections` of the server, `CONNECTION LIMIT` of the role \
         and the database. Check that the program does not hold all connections of its pool; if it does, raise the \
         `max_connections` of the pool",
        because(refusal)
    )]
    NoConnection { max: u32, required: u32, own: u32, refusal: Option<String>, source: sqlx::Error },

    #[error("the tables in schema `{schema}` cannot be brought up to date")]
    Migration { schema: String, source: sqlx::migrate::MigrateError },

    #[cfg(feature = "embedded")]
    #[error("could not start the embedded PostgreSQL")]
    Embedded(#[from] crate::embedded::EmbeddedError),
}

impl From<Vec<SetupError>> for ErrorKind {
    fn from(errors: Vec<SetupError>) -> Self {
        Self::Setup(errors)
    }
}

impl ErrorKind {
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

    /// The missing right, if that is the cause.
    pub(super) fn denied(&self) -> Option<SetupError> {
        let source = self.of_sqlx().filter(|source| is_denied(source))?;
        let doing = match self {
            Self::Database { doing, .. } | Self::Denied { doing, .. } | Self::Unavailable { doing, .. } => {
                (*doing).to_owned()
            }
            Self::Migration { schema, .. } => {
                format!("the tables in schema `{schema}` were brought up to date")
            }
            _ => "it started".to_owned(),
        };
        Some(SetupError::Denied { doing, refusal: refusal(source) })
    }

    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::ReadsBusy { .. }) || self.of_sqlx().is_some_and(is_transient)
    }
}
