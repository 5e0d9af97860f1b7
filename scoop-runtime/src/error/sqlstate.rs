//! The meaning of errors of sqlx and the server: whose fault it is, and whether another attempt may succeed.

use std::sync::Arc;

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

use super::RuntimeError;

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
        sqlx::Error::Database(error) => is_infrastructure(&**error),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        // A connection that ends before the server has said whether it encrypts: `sqlx` takes the missing byte for a zero.
        sqlx::Error::Protocol(text) => text.contains("SSLRequest"),
        _ => false,
    }
}

/// As [`is_transient_in_step`], for a statement of the engine in the transaction of a step. It may also exceed the
/// timeouts that apply there, since the locks that it waits for are not caused by the step.
pub(crate) fn is_transient_within_step(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    is_transient_in_step(error) || code.is_some_and(|code| [CANCELLED, LOCK_NOT_AVAILABLE].contains(&&*code))
}

/// Whether the server or the connection failed, and not the statement.
fn is_infrastructure(error: &dyn DatabaseError) -> bool {
    // Connection, transaction rollback (serialization, deadlock), insufficient resources (full disk, too many
    // connections), operator intervention, system error.
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
    // `idle_in_transaction_session_timeout` and `transaction_timeout`: the server has closed the session.
    const SESSION_ENDED: [&str; 2] = ["25P03", "25P04"];
    let code = error.code().unwrap_or_default();
    // A statement that was cancelled by a timeout will exceed it again.
    code != CANCELLED
        && (CLASSES.iter().any(|class| code.starts_with(class)) || SESSION_ENDED.contains(&&*code))
        && !is_raised_by(error, READS_COPY)
}

/// The function of the server that reads the rows of a COPY, and meets something else if the COPY was left open.
const READS_COPY: &str = "CopyGetData";

/// Whether this function of the server raised the error.
fn is_raised_by(error: &dyn DatabaseError, routine: &str) -> bool {
    error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.routine() == Some(routine))
}

/// Whether a statement of the engine failed since the step has left a COPY open before it.
pub(crate) fn is_of_open_copy(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => is_raised_by(&**error, READS_COPY),
        // Rows of the COPY in place of the answer.
        sqlx::Error::Protocol(text) => text.contains("Copy"),
        _ => false,
    }
}

/// Whether the connection of this error is out of step with the server, since a COPY was left open.
pub(crate) fn is_out_of_step(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Protocol(_)) || is_of_open_copy(error)
}

/// The same for an error of user code.
pub(crate) fn leaves_out_of_step(error: &scoop_core::Error) -> bool {
    let is = |cause: &(dyn std::error::Error + 'static)| match of_sqlx(cause) {
        (Some(error), _) => is_out_of_step(error),
        (None, answer) => answer.is_some_and(|answer| is_raised_by(answer, READS_COPY)),
    };
    error.chain().take(CHAIN_MAX).any(is)
}

/// Whether a session has refused a statement, and executed nothing of it, since it does not know the statement any more,
/// or since a table or type has changed. The statement is all right where it is prepared anew.
pub(crate) fn is_stale(error: &dyn DatabaseError) -> bool {
    const PREPARED_STATEMENT_MISSING: &str = "26000";
    const PREPARED_STATEMENT_EXISTS: &str = "42P05";
    const INTERNAL: &str = "XX000";
    match error.code().as_deref() {
        Some(PREPARED_STATEMENT_MISSING | PREPARED_STATEMENT_EXISTS) => true,
        // A type that was dropped and made again. Such messages are not translated.
        Some(INTERNAL) => error.message().starts_with("cache lookup failed for "),
        _ => is_of_changed_tables(error),
    }
}

/// Whether user code failed because of the database or the engine: by this error or one in its chain of sources.
/// Without a transaction of the engine, errors of sqlx come from databases of the user and do not count.
pub(crate) fn is_of_infrastructure(error: &scoop_core::Error, rolled_back: RolledBack) -> bool {
    let is = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<RuntimeError>().is_some_and(RuntimeError::is_transient)
            || matches!(rolled_back, RolledBack::Transaction { .. }) && is_transient_cause(cause)
            || rolled_back == RolledBack::Transaction { is_fresh: false } && is_stale_cause(cause)
    };
    error.is_infrastructure() || error.chain().take(CHAIN_MAX).any(is)
}

/// Whether a stale statement is among the causes of an error of user code: see [`is_stale`].
pub(crate) fn is_of_stale_statement(error: &scoop_core::Error) -> bool {
    error.chain().take(CHAIN_MAX).any(is_stale_cause)
}

/// The maximum number of errors examined in a chain of sources: the chain of an error that is its own source has no
/// end.
pub(crate) const CHAIN_MAX: usize = 1_000;

/// An error of sqlx, and the answer of the server in it. The error may be the cause itself, one behind a pointer, or only
/// the answer, which remains of it when a `#[error(transparent)]` passes its source on.
fn of_sqlx<'a>(
    cause: &'a (dyn std::error::Error + 'static),
) -> (Option<&'a sqlx::Error>, Option<&'a dyn DatabaseError>) {
    let itself = cause.downcast_ref::<sqlx::Error>();
    let boxed = || cause.downcast_ref::<Box<sqlx::Error>>().map(|error| &**error);
    let shared = || cause.downcast_ref::<Arc<sqlx::Error>>().map(|error| &**error);
    match itself.or_else(boxed).or_else(shared) {
        Some(error) => (Some(error), error.as_database_error()),
        None => (None, cause.downcast_ref::<Box<dyn DatabaseError>>().map(|answer| &**answer)),
    }
}

/// Whether this is an error of sqlx caused by the connection or the server.
fn is_transient_cause(cause: &(dyn std::error::Error + 'static)) -> bool {
    match of_sqlx(cause) {
        (Some(error), _) => is_transient_in_step(error),
        (None, answer) => answer.is_some_and(is_infrastructure),
    }
}

/// Whether this is an error of sqlx caused by a stale statement.
fn is_stale_cause(cause: &(dyn std::error::Error + 'static)) -> bool {
    of_sqlx(cause).1.is_some_and(is_stale)
}

/// Whether this is an error of sqlx caused by `lock_timeout`.
pub(crate) fn is_contended(cause: &(dyn std::error::Error + 'static)) -> bool {
    of_sqlx(cause).1.and_then(DatabaseError::code).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}

/// Whether the server has rolled the transaction back in place of a commit: a conflict with other transactions.
pub(crate) fn is_rolled_back(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("40") && code != COMPLETION_UNKNOWN)
}

/// Whether the server refuses a statement, and would again: not because of the connection or the server.
pub fn is_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error)
}

/// Whether the role or the tables are to blame for an error of the server: a statement with other rows would fail, too.
pub fn is_of_setup(error: &sqlx::Error) -> bool {
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
            let is = |code: &str| CLASSES.iter().any(|class| code.starts_with(class));
            error.code().is_some_and(|code| is(&code)) && !is_of_changed_tables(&**error)
        }
        error => decodes_data(error),
    }
}

/// Whether a session refuses a statement that it prepared before the tables of the statement were changed.
fn is_of_changed_tables(error: &dyn DatabaseError) -> bool {
    is_raised_by(error, "RevalidateCachedQuery")
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

/// What remains to be rolled back after failed user code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RolledBack {
    Nothing,
    /// It had a transaction of the engine.
    Transaction {
        is_fresh: bool,
    },
    LostConnection,
}

/// Whether the text of this error of the database quotes data, so that it must not be logged.
pub(crate) fn decodes_data(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
}
