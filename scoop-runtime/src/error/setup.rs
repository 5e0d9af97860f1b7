//! The mistakes for which a program cannot start.

use std::time::{Duration, SystemTime};

use scoop_core::Escaped;

use super::words::{times, written};
use crate::model::format::{humane, utc};

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

    /// Several values of one type were [provided](crate::Builder::provide), and a program runs one.
    #[error(
        "`{type_name}` was provided {}, and a program has one value of each saga: keep one of the calls of `.provide(..)`",
        times(*count)
    )]
    ProvidedTwice {
        /// The Rust type.
        type_name: &'static str,
        /// The number of the values.
        count: usize,
    },

    /// A provided saga is not one that this program runs.
    #[error("`{type_name}` was provided, but it is none of the sagas that this program runs")]
    NotASaga {
        /// The Rust type.
        type_name: &'static str,
    },

    /// The program does not have a saga that it [expects](crate::Builder::expects).
    #[error(
        "saga `{name}` is expected, but the program does not have it{}; if it is in a library that no code refers to, the linker \
         has dropped it: write `use your_library as _;` in the program",
        did_you_mean(near)
    )]
    MissingSaga {
        /// The saga.
        name: String,
        /// The sagas with a similar name, the nearest first.
        near: Vec<String>,
    },

    /// Two types have the same key in the context, so that one would be read as the other.
    #[error(
        "two types have the context key `{key}`: {types}; give one of them another key with `#[context(key = \"...\")]`"
    )]
    DuplicateContextKey {
        /// The key.
        key: String,
        /// The Rust types.
        types: String,
    },

    /// Two signals have the same name, so that one would be read as the other.
    #[error(
        "two signals are named `{name}`: {types}; give one of them another name with `#[signal(name = \"...\")]`"
    )]
    DuplicateSignalName {
        /// The name.
        name: String,
        /// The Rust types.
        types: String,
    },

    /// Two strategies of launches have the same name, so that one would decide for the other.
    #[error("two strategies of launches are named `{name}`: {types}; give one of them another `NAME`")]
    DuplicateWaitStrategy {
        /// The name.
        name: String,
        /// The Rust types.
        types: String,
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

    /// The name of a service or of a build cannot be stored.
    #[error("`Builder::{setting}` takes 1 to 255 characters without control characters, and gets {name:?}")]
    UnfitName {
        /// The setting.
        setting: &'static str,
        /// The name.
        name: String,
    },

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

    /// A time of [`Retention`](crate::Retention) is too short.
    #[error(
        "`Retention::{setting}` is {}, and the least is {}; write `.{setting}({})` or more",
        humane(*time),
        humane(*least),
        written(*least)
    )]
    RetentionTime {
        /// The method of `Retention`.
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

    /// The server allows the role or the database fewer connections than the pool. Steps under load would leave the
    /// engine without one.
    #[error(
        "{of} has a limit of {limit} connections, and this program needs {required}: `max_connections` of its pool, \
         which includes those of the engine; raise the limit (`CONNECTION LIMIT`), or lower `max_connections`"
    )]
    ConnectionLimit {
        /// The role or the database.
        of: String,
        /// Its limit.
        limit: i32,
        /// The limit of the pool.
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
         or call `scoop::migration::migrate`, or name the schema of those that run (`.schema(..)`), or connect to \
         their database"
    )]
    NoTables {
        /// The missing object.
        what: String,
    },

    /// The role of the pool lacks a permission on the server.
    #[error(
        "the server refused while {doing}: {}; grant what the guide's page about security lists to the role of the \
         connections, or have a role that may create tables make them (`scoop::migration::migrate`)",
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

    /// The database cannot store every text: its encoding is another one than UTF-8.
    #[error(
        "the encoding of this database is {}, and scoop needs UTF8, since messages and failures contain any text; create \
         another one: `CREATE DATABASE .. ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0`",
        Escaped(encoding)
    )]
    Encoding {
        /// The encoding of the database.
        encoding: String,
    },

    /// The tables were made by an earlier version of scoop, and this program does not change them.
    #[error(
        "schema `{schema}` is of version {found}, and this program needs {known}; bring the tables up to date with \
         `scoop::migration::migrate`, or start a program with sagas that is built with this version of scoop"
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
        "schema `{schema}` was not made by this build of scoop: its migration {version} has the checksum {found} in the \
         database (applied {}), but {known} in this program; start a program of the build that made the schema, or choose \
         another schema: `.schema(..)` on the builder",
        utc(*applied_at)
    )]
    SchemaDiffers {
        /// The schema.
        schema: String,
        /// The number of the migration that differs.
        version: i64,
        /// The first 12 digits of the checksum that the database has recorded.
        found: String,
        /// The time at which the migration was applied.
        applied_at: SystemTime,
        /// The first 12 digits of the checksum in this program.
        known: String,
    },

    /// No database was chosen: neither a pool nor a private PostgreSQL nor the memory of the program.
    #[error(
        "no database: call `.postgres(pool)`, `.embedded()` or `.in_memory()` on the builder (the last two with the features `embedded` and `in-memory`)"
    )]
    NoDatabase,
}

/// The similar names in parentheses, if there are some.
pub(super) fn did_you_mean(near: &[String]) -> String {
    let near: Vec<_> = near.iter().map(|name| format!("`{}`", Escaped(name))).collect();
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(" or ")) }
}

pub(super) fn list(errors: &[SetupError]) -> String {
    errors.iter().map(|error| format!("\n  - {error}")).collect()
}
