//! Errors of the functions of the runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::{Escaped, Failure};
use uuid::Uuid;

use crate::store::RolledBack;
use crate::telemetry;
use crate::util::format::{humane, utc};
use crate::{Named, RunningStep, Wanted};

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

    /// The runs of the message would exceed [`Builder::depth_max`](crate::Builder::depth_max).
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
        topic: &'static str,
        /// The depth that the runs would have; that of a run without a parent is 1.
        depth: usize,
        /// The greatest depth allowed.
        limit: usize,
    },

    /// A time outside the range that can be stored, the years 1 to 9999.
    #[error("{when} is out of range (years 1 to 9999)")]
    Time {
        /// The time.
        when: String,
    },

    /// Data was to be deleted that is younger than is possible.
    #[error(
        "nothing younger than {} can be pruned, and `older_than` is {}; write `.older_than({})` or more",
        humane(*least),
        humane(*age),
        written(*least)
    )]
    PruneAge {
        /// The age.
        age: Duration,
        /// The least that is possible.
        least: Duration,
    },

    /// The [archive](crate::Builder::before_delete) failed, so that its hierarchies are not deleted.
    #[error("{count} hierarchies are not archived, and so not pruned")]
    Archive {
        /// Their number.
        count: usize,
        /// The error of the archive.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// No saga or topic can have this name, so that nothing can be paused under it.
    #[error("{target} cannot be paused: a name has 1 to 255 bytes without NUL")]
    PauseTarget {
        /// The target with that name.
        target: crate::PauseTarget,
    },

    /// A pause would end at once.
    #[error(
        "a pause for {} would end at once; write `.for_at_most({})` or more, or leave it out: then the pause lasts until \
         `resume` ends it",
        humane(*time),
        written(*least)
    )]
    PauseTime {
        /// The time given.
        time: Duration,
        /// The least that is possible.
        least: Duration,
    },

    /// The reason or the source of a pause, or of its end, is too long.
    #[error("the {part} of a pause has {chars} characters, and {chars_max} are possible")]
    PauseText {
        /// `reason` or `source`.
        part: &'static str,
        /// The length of the text.
        chars: usize,
        /// The maximum length.
        chars_max: usize,
    },

    /// The tokio runtime that the engine was started on was dropped, and the engine with it. Its runs continue in
    /// other processes, or in the next one that starts.
    #[error(
        "the engine is gone without a shutdown: the tokio runtime on which it was started was dropped; keep that runtime \
         until `Scoop::shutdown` has returned"
    )]
    EngineGone,

    /// The engine has stopped, and has aborted these steps.
    #[error(
        "still running after {limit:?} were {}; each is left to other workers, where it begins anew",
        listed(steps)
    )]
    StepsStopped {
        /// The time that [`Scoop::shutdown_within`](crate::Scoop::shutdown_within) allowed.
        limit: Duration,
        /// The steps.
        steps: Vec<RunningStep>,
    },

    /// No hierarchy or run has this id: it was never launched, its transaction was not committed, or it was
    /// [pruned](crate::Scoop::prune).
    #[error(
        "there is no hierarchy and no run {id}; was the transaction that launched it committed, or was it pruned?"
    )]
    NoSuchRun {
        /// The id.
        id: Uuid,
    },

    /// The id names an object of another kind than the request takes.
    #[error("{id} is {named}; {}", wanted.remedy(named))]
    WrongId {
        /// The id.
        id: Uuid,
        /// The object that the id names.
        named: Named,
        /// The kind of id that the request takes.
        wanted: Wanted,
    },
    /// A signal cannot be sent.
    #[error("the signal `{}` cannot be sent: {why}", Escaped(signal))]
    Signal {
        /// The name of the signal.
        signal: String,
        /// The reason.
        why: String,
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

    /// Entities cannot be [rebuilt](crate::Scoop::rebuild_entities). They are unchanged; all others are rebuilt.
    #[error("{failed} entities of `{entity}` cannot be rebuilt:{}", not_rebuilt(*.failed, .failures))]
    EntitiesNotRebuilt {
        /// The name of the entity.
        entity: &'static str,
        /// The number of those that cannot be rebuilt.
        failed: u64,
        /// The first 100 of these.
        failures: Vec<crate::EntityNotRebuilt>,
        /// The others.
        rebuilt: Box<crate::RebuiltEntities>,
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
    /// [pruned](crate::Scoop::prune).
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
    /// [kept](crate::Keep::unique_keys): a launch with it starts nothing.
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
        /// The requirer: the Rust type of the message, `Scoop::launch_untyped` or `Scoop::redeliver`.
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
        way_out(*messages, *limit)
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

    /// [`Scoop::trigger`](crate::Scoop::trigger) or [`trigger_named`](crate::Scoop::trigger_named) was called for a saga
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
        "the role of the connections lacks a right while {doing}: {}; the guide lists the GRANTs that each role needs",
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

    /// The database was away for longer than the program has [patience](crate::Builder::patience).
    #[error(
        "the database failed while {doing}: {attempts} {} within {waited:.1?}, where `Builder::patience` allows \
         {patience:?} for retries; {}", attempts_in_vain(*attempts), effect(*may_have_happened)
    )]
    Unavailable {
        /// The operation.
        doing: &'static str,
        /// The number of attempts.
        attempts: u32,
        /// The time spent on the attempts.
        waited: Duration,
        /// The setting.
        patience: Duration,
        /// The answer of the server was lost, so the operation may have taken effect.
        may_have_happened: bool,
        /// The error of sqlx, from the last attempt that had a connection.
        source: sqlx::Error,
    },

    /// The working set cannot be rebuilt while workers execute runs of it.
    #[error(
        "the working set cannot be rebuilt while processes run sagas on it, and {workers} do; stop them first"
    )]
    WorkersAlive {
        /// The number of registered workers.
        workers: i64,
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
         redelivered by `Scoop::redeliver`"
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

/// A mistake that prevents a program from starting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Two sagas have the same name, so their runs could not be distinguished.
    #[error(
        "two sagas are named `{name}`: {types}; give one of them another name with `#[saga(name = \"...\")]`"
    )]
    DuplicateSagaName {
        /// The name.
        name: String,
        /// The Rust types.
        types: String,
    },

    /// Two error types have the same code, so a stored failure could not be attributed to one of them.
    #[error(
        "two errors have the code `{code}`: {types}; give one of them another code with `#[failure(code = \"...\")]`"
    )]
    DuplicateFailureCode {
        /// The code.
        code: String,
        /// The Rust types.
        types: String,
    },

    /// Two entities have the same name, so their states could not be distinguished.
    #[error(
        "two entities are named `{name}`: {types}; give one of them another name with `#[entity(name = \"...\")]`"
    )]
    DuplicateEntityName {
        /// The name.
        name: String,
        /// The Rust types, and those of their keys.
        types: String,
    },

    /// An entity applies two events of one topic, so a stored event could not be attributed to one of them.
    #[error(
        "entity `{name}` applies several events with the topic `{topic}`: {types}; give each its own topic"
    )]
    DuplicateApplication {
        /// The entity.
        name: String,
        /// The topic.
        topic: String,
        /// The Rust types of the events.
        types: String,
    },

    /// The states of an entity are in a table, and the program runs in memory, without a database.
    #[error(
        "the states of the entity `{entity}` are in a table, and this program runs in memory: its command `{saga}` needs \
         `.postgres(pool)` or `.embedded()`"
    )]
    TableInMemory {
        /// The entity.
        entity: String,
        /// The saga of the command.
        saga: String,
    },

    /// A saga has dependencies, and was not [provided](crate::Builder::provide).
    #[error(
        "saga `{name}` was never provided: call `.provide({type_name} {{ .. }})` on the builder, or implement `Default` for it"
    )]
    NotProvided {
        /// The saga.
        name: String,
        /// Its Rust type.
        type_name: &'static str,
    },

    /// A provided saga is not one that this program runs.
    #[error("`{type_name}` was provided, but it is none of the sagas that this program runs")]
    NotASaga {
        /// The Rust type.
        type_name: &'static str,
    },

    /// Handlers of one topic expect different message types.
    #[error(
        "topic `{topic}` is claimed by several message types: {types}; handlers of one topic must agree on its type"
    )]
    ConflictingTopicTypes {
        /// The topic.
        topic: String,
        /// The Rust types.
        types: String,
    },

    /// A schedule is invalid, or a saga has only one of a schedule and the message type [`Tick`](crate::Tick).
    #[error("saga `{name}` cannot run on a schedule: {why}")]
    Schedule {
        /// The saga.
        name: String,
        /// The mistake, and its remedy.
        why: String,
    },

    /// A name cannot be stored.
    #[error(transparent)]
    Name(#[from] scoop_core::NameError),

    /// A setting is out of range.
    #[error("{setting} must be >= {min}, but is {value}")]
    TooSmall {
        /// The setting.
        setting: &'static str,
        /// The least possible value.
        min: usize,
        /// The value given.
        value: usize,
    },

    /// A time of [`Keep`](crate::Keep) is too short.
    #[error(
        "`Keep::{setting}` is {}, and the least is {}; write `.{setting}({})` or more",
        humane(*time),
        humane(*least),
        written(*least)
    )]
    KeepTime {
        /// The method of `Keep`.
        setting: &'static str,
        /// The time given.
        time: Duration,
        /// The least possible time.
        least: Duration,
    },

    /// The pool allows fewer connections than the engine needs to make progress.
    #[error(
        "the connection pool allows {max} connections, but scoop needs {required}: {engine} for the engine, \
         and at least one for steps; raise `max_connections`",
        engine = required - 1
    )]
    PoolTooSmall {
        /// The pool's limit.
        max: u32,
        /// The least possible limit.
        required: u32,
    },

    /// The connection that listens has no session of its own: it leads through a proxy that assigns sessions per
    /// transaction.
    #[error(
        "the connection that listens gets another session of the server for each transaction, as behind a \
         proxy with `pool_mode = transaction`, so that it would hear nothing and hold no lock; give it a \
         way to the server itself: `.listen_directly(options)` on the builder"
    )]
    SharedSession,

    /// The connection that listens leads to another database than the pool.
    #[error(
        "the options of `.listen_directly(options)` lead to another database than the pool; both must lead \
         to the same one"
    )]
    DatabaseMismatch,

    /// The pool caches prepared statements, although it [leads through a proxy](crate::Builder::behind_proxy) that
    /// does not keep them.
    #[error(
        "the pool leads through a proxy, where a prepared statement may be gone or another client's, but its \
         connections cache theirs; make it with `PgConnectOptions::statement_cache_capacity(0)`"
    )]
    StatementCacheEnabled,

    /// The schema's name cannot be used.
    #[error("{name:?} cannot be the name of a schema: {why}; give another by `.schema(..)` on the builder")]
    SchemaName {
        /// The name.
        name: String,
        /// The mistake in it.
        why: String,
    },

    /// The tables do not exist, and this program does not make them.
    #[error(
        "{what}: the first program with sagas that starts on a schema (`Builder::start`) makes them there; start one, \
         or call `scoop::migrate`, or name the schema of those that run (`.schema(..)`), or connect to \
         their database"
    )]
    NoTables {
        /// The missing object.
        what: String,
    },

    /// The role of the pool lacks a permission on the server.
    #[error(
        "the server refused while {doing}: {}; grant what the guide's page about security lists to the role of the \
         connections, or have a role that may create tables make them (`scoop::migrate`)",
        Escaped(refusal)
    )]
    Denied {
        /// The operation.
        doing: String,
        /// The error of the server.
        refusal: String,
    },

    /// The server lacks what scoop uses.
    #[error("this PostgreSQL is version {version}; scoop needs 15 or later")]
    DatabaseTooOld {
        /// The server's version.
        version: String,
    },

    /// The tables were made by an earlier version of scoop, and this program does not change them.
    #[error(
        "schema `{schema}` is of version {found}, and this program needs {known}; bring the tables up to date with \
         `scoop::migrate`, or start a program with sagas that is built with this version of scoop"
    )]
    SchemaTooOld {
        /// The schema.
        schema: String,
        /// Its version.
        found: i64,
        /// The version needed.
        known: i64,
    },

    /// The tables were made by a later version of scoop.
    #[error(
        "schema `{schema}` is of version {found}, but this program knows versions up to {known} only; \
         update the program, or give it another schema"
    )]
    SchemaTooNew {
        /// The schema.
        schema: String,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },

    /// The tables differ from those that this version of scoop makes.
    #[error(
        "schema `{schema}` was not made by this version of scoop: its version {version} differs; \
         give the program another schema"
    )]
    SchemaDiffers {
        /// The schema.
        schema: String,
        /// The version that differs.
        version: i64,
    },

    /// No database was chosen: neither a pool nor a private PostgreSQL nor the memory of the program.
    #[error(
        "no database: call `.postgres(pool)`, `.embedded()` or `.in_memory()` on the builder (the last two with the features `embedded` and `in-memory`)"
    )]
    NoDatabase,
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
        matches!(self, Self::Unavailable { may_have_happened: true, .. })
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

    /// Whether the operation may succeed when repeated: the connection or the server failed, not the request.
    pub fn is_transient(&self) -> bool {
        self.of_sqlx().is_some_and(is_transient)
    }
}

/// The message of the server.
pub(crate) fn refusal(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn without_result(
    id: &Uuid,
    topic: &&'static str,
    why: &NoResult,
    failed: &Option<FailedStep>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "message {id} on topic `{topic}` has no result: {why}")?;
    if let Some(failed) = failed {
        write!(f, " ({failed} failed)")?;
    }
    match why {
        NoResult::RolledBack(failure) | NoResult::RollbackFailed(failure) | NoResult::Refused(failure)
            if f.alternate() =>
        {
            write!(f, "\n{}", failure.report().trim_end())
        }
        _ => Ok(()),
    }
}

fn because(refusal: &Option<String>) -> String {
    refusal.as_ref().map_or_else(String::new, |refusal| format!(" ({})", Escaped(refusal)))
}

fn after(waited: Option<Duration>) -> String {
    waited.map_or_else(String::new, |waited| format!(" for {waited:.1?}"))
}

fn messages_in_words(messages: usize) -> String {
    if messages == 1 { "a message".to_owned() } else { format!("{messages} messages") }
}

/// The remedy for a full queue.
fn way_out(messages: usize, limit: u32) -> &'static str {
    match usize::try_from(limit).is_ok_and(|limit| messages > limit) {
        true => "launch fewer messages at once, or raise the `queue` of the saga",
        false => {
            "launch again later, or let the launch wait by `.wait_for_room(..)`, which one in a transaction does not; for \
             more room, end a pause of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`"
        }
    }
}

fn attempts_in_vain(attempts: u32) -> &'static str {
    if attempts == 1 { "attempt failed" } else { "attempts failed" }
}

fn effect(may_have_happened: bool) -> &'static str {
    match may_have_happened {
        true => {
            "an answer of the server was lost, so the operation may have taken effect: check before trying again, or \
             launch with a key (`.unique(..)`), which makes another attempt safe"
        }
        false => "nothing was done",
    }
}

/// Whether the server may have committed the request despite this error.
pub(crate) fn loses_answer(error: &sqlx::Error) -> bool {
    match error {
        // A statement that the server refused had no effect, unless the error ends the session.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            code == COMPLETION_UNKNOWN || code.starts_with("08") || code == "57P01" || code == "57P02"
        }),
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::BeginFailed
        | sqlx::Error::Encode(_)
        | sqlx::Error::Configuration(_) => false,
        _ => true,
    }
}

/// Whether a statement of the engine failed because of the connection or the server. A standby also counts: it is
/// read-only until it is promoted.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    const READ_ONLY_TRANSACTION: &str = "25006";
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(READ_ONLY_TRANSACTION) || is_transient_in_step(error)
}

/// As [`is_transient`], for a statement in the transaction of a step. That transaction began as writable, so if it is
/// read-only, the step itself made it so.
pub(crate) fn is_transient_in_step(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_infrastructure(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    }
}

/// As [`is_transient_in_step`], for a statement of the engine in the transaction of a step. It may also exceed the
/// timeouts that apply there, since the locks that it waits for are not caused by the step.
pub(crate) fn is_transient_within_step(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    is_transient_in_step(error) || code.is_some_and(|code| [CANCELLED, LOCK_NOT_AVAILABLE].contains(&&*code))
}

/// Whether this SQLSTATE means that the server or the connection failed, and not the statement.
fn is_infrastructure(code: &str) -> bool {
    // Connection, transaction rollback (serialization, deadlock), insufficient resources (full disk, too many
    // connections), operator intervention, system error.
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
    // `idle_in_transaction_session_timeout` and `transaction_timeout`: the server has closed the session.
    const SESSION_ENDED: [&str; 2] = ["25P03", "25P04"];
    // A statement that was cancelled by a timeout will exceed it again.
    code != CANCELLED
        && (CLASSES.iter().any(|class| code.starts_with(class)) || SESSION_ENDED.contains(&code))
}

/// Whether user code failed because of the database or the engine: by this error or one in its chain of sources.
/// Without a transaction of the engine, errors of sqlx come from databases of the user and do not count.
pub(crate) fn is_of_infrastructure(error: &scoop_core::Error, undone: RolledBack) -> bool {
    let is = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<RuntimeError>().is_some_and(RuntimeError::is_transient)
            || undone == RolledBack::Transaction && is_transient_cause(cause)
    };
    error.is_infrastructure() || error.chain().take(CHAIN_MAX).any(is)
}

/// The maximum number of errors examined in a chain of sources: the chain of an error that is its own source has no
/// end.
pub(crate) const CHAIN_MAX: usize = 1_000;

/// Whether this is an error of sqlx caused by the connection or the server. It may be the error itself, one behind a
/// pointer, or the server's answer, which remains of it when a `#[error(transparent)]` passes its source on.
fn is_transient_cause(cause: &(dyn std::error::Error + 'static)) -> bool {
    let itself = cause.downcast_ref::<sqlx::Error>();
    let boxed = || cause.downcast_ref::<Box<sqlx::Error>>().map(|error| &**error);
    let shared = || cause.downcast_ref::<Arc<sqlx::Error>>().map(|error| &**error);
    match itself.or_else(boxed).or_else(shared) {
        Some(error) => is_transient_in_step(error),
        None => {
            let answer = cause.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>();
            answer.and_then(|answer| answer.code()).is_some_and(|code| is_infrastructure(&code))
        }
    }
}

/// Whether this is an error of sqlx caused by `lock_timeout`: see [`is_transient_cause`].
pub(crate) fn is_contended(cause: &(dyn std::error::Error + 'static)) -> bool {
    let itself = cause.downcast_ref::<sqlx::Error>();
    let boxed = || cause.downcast_ref::<Box<sqlx::Error>>().map(|error| &**error);
    let shared = || cause.downcast_ref::<Arc<sqlx::Error>>().map(|error| &**error);
    let answer = match itself.or_else(boxed).or_else(shared) {
        Some(error) => error.as_database_error(),
        None => cause.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>().map(|answer| &**answer),
    };
    answer.and_then(|answer| answer.code()).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}

/// Whether the server has rolled the transaction back in place of a commit: a conflict with other transactions.
pub(crate) fn is_rolled_back(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("40") && code != COMPLETION_UNKNOWN)
}

/// Whether the server refuses a statement, and would again: not because of the connection or the server.
pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error)
}

/// Whether the role or the tables are to blame for an error of the server: a statement with other rows would fail, too.
pub(crate) fn is_of_setup(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("42") || code.starts_with("3F"))
}

/// Whether a statement of the engine failed because of the contents of a row. It will fail again with that row; other
/// rows are not affected.
pub(crate) fn is_of_contents(error: &sqlx::Error) -> bool {
    // Data exceptions, violated constraints, and values that the server does not support or that are larger than it
    // allows, such as those of an index.
    const CLASSES: [&str; 5] = ["0A", "21", "22", "23", "54"];
    match error {
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
        }
        error => telemetry::decodes_data(error),
    }
}

/// Whether the role lacks a permission.
pub(crate) fn is_denied(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "42501")
}

/// The message of the server if a table or schema is missing.
pub(crate) fn is_without_tables(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    let missing = error.code().is_some_and(|code| code == "42P01" || code == "3F000");
    missing.then(|| error.message().to_owned())
}

/// Whether the pool or the server has no connection left.
pub(crate) fn is_crowded(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(error, sqlx::Error::PoolTimedOut) || code.is_some_and(|code| code == "53300")
}

/// Whether a statement was cancelled, on request or by a timeout.
pub(crate) fn is_cancelled(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == CANCELLED)
}

const CANCELLED: &str = "57014";

const COMPLETION_UNKNOWN: &str = "40003";

/// `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Lists the names, each once.
fn distinct(names: &[String]) -> String {
    let names: std::collections::BTreeSet<_> =
        names.iter().map(|name| format!("`{}`", Escaped(name))).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// A time as it is written in a program.
fn written(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("Duration::from_secs({})", time.as_secs()),
        _ => format!("Duration::from_millis({})", time.as_millis()),
    }
}

fn listed(steps: &[RunningStep]) -> String {
    steps.iter().map(RunningStep::to_string).collect::<Vec<_>>().join("; ")
}

/// The first of these failures, and the number of the others.
fn not_rebuilt(failed: u64, failures: &[crate::EntityNotRebuilt]) -> String {
    const SHOWN_MAX: usize = 10;
    let shown: String = failures.iter().take(SHOWN_MAX).map(|failure| format!("\n  - {failure}")).collect();
    match failed.saturating_sub(SHOWN_MAX as u64) {
        0 => shown,
        others => format!("{shown}\n  - and {others} others"),
    }
}

fn list(errors: &[SetupError]) -> String {
    errors.iter().map(|error| format!("\n  - {error}")).collect()
}

#[cfg(test)]
mod tests {
    use sqlx::migrate::MigrateError;

    use super::*;

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
    fn start_that_lost_its_connection_is_transient() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
        let migration = |source| RuntimeError::Migration { schema: "scoop".into(), source };
        assert!(migration(MigrateError::Execute(lost())).is_transient());
        assert!(migration(MigrateError::ExecuteMigration(lost(), 3)).is_transient());
        assert!(!migration(MigrateError::Execute(sqlx::Error::RowNotFound)).is_transient());
        assert!(!migration(MigrateError::Dirty(3)).is_transient());
    }
}
